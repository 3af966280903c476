package table

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func withOption(volume *corev1.PersistentVolume, option string) *corev1.PersistentVolume {
	volume.Spec.MountOptions = append(volume.Spec.MountOptions, option)
	return volume
}

// TestHarmfulMountOptionIsReported on its volume, and once on the table.
func TestHarmfulMountOptionIsReported(t *testing.T) {
	foreign, elsewhere := withOption(claimed("c", "", 2049), "bg"), withOption(claimed("d", "fs-1", 2049), "bg")
	elsewhere.Spec.NFS.Server = "10.0.0.1"
	s := given(tableOf(map[string]ports.Target{"fs-1": target(20490)})).state
	s.volumes = []*corev1.PersistentVolume{
		withOption(claimed("b", "fs-1", 20490), "bg"), withOption(claimed("a", "fs-1", 20490), "X-mount.subdir=x"),
		claimed("right", "fs-1", 20490), foreign, elsewhere,
	}
	recorder := record.NewFakeRecorder(10)
	recorder.IncludeObject = true
	r := &reporter{Options: Options{Events: recorder, Log: slog.New(slog.DiscardHandler), Now: time.Now}}
	for range 2 { // no event is repeated
		r.report(t.Context(), s.table.object, options().plan(s).notices)
	}
	for _, part := range []string{
		"mount options of a, b may have pods write elsewhere", `"X-mount.subdir=x"`, `"bg"`,
	} {
		if len(recorder.Events) == 0 {
			t.Fatalf("no event with %s", part)
		}
		if event := <-recorder.Events; !strings.Contains(event, part) || !strings.HasPrefix(event, "Warning "+wellknown.EventMountOptionHarmful) {
			t.Errorf("got %q, want %s in it", event, part)
		}
	}
	if len(recorder.Events) > 0 {
		t.Errorf("one event more: %q", <-recorder.Events)
	}
	s.volumes = nil
	r.report(t.Context(), s.table.object, options().plan(s).notices)
	if event := <-recorder.Events; !strings.Contains(event, "MountOptionHarmful of Installation has ended") {
		t.Errorf("got %q when the options are corrected", event)
	}
}

// TestHarmfulMountOptionOfAClassIsReportedOnAFewVolumes of thousands, and the table counts them all.
func TestHarmfulMountOptionOfAClassIsReportedOnAFewVolumes(t *testing.T) {
	var objects []*corev1.PersistentVolume
	for i := range 3000 {
		objects = append(objects, withOption(claimed(fmt.Sprintf("v-%04d", i), "fs-1", 20490), "bg"))
	}
	all := optionConditions(objects)
	if len(all) != maxOptionEvents+1 || !strings.Contains(all[maxOptionEvents].Message, "v-0004 and 2995 others") {
		t.Errorf("%d notices, the last %q", len(all), all[len(all)-1].Message)
	}
}
