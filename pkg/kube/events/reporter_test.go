package events_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/kube/events"
)

func claimWithUID(uid types.UID) events.Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: uid}}
}

// TestReporter records a Warning about claim 1, with reason A, topic x and message m, and then another event.
func TestReporter(t *testing.T) {
	tests := map[string]struct {
		second func(*events.Reporter)
		want   []string // events after the first one
	}{
		"the same event is not repeated": {func(r *events.Reporter) { r.Warn(claimWithUID("1"), "A", "x", "m") }, nil},
		"nor while its cause lasts": {func(r *events.Reporter) {
			for range 24 {
				<-time.After(time.Hour)
				r.Warn(claimWithUID("1"), "A", "x", "m")
			}
		}, nil},
		"another message is recorded": {func(r *events.Reporter) { r.Warn(claimWithUID("1"), "A", "x", "n") }, []string{"Warning A n"}},
		"an earlier message is recorded again": {func(r *events.Reporter) {
			r.Warn(claimWithUID("1"), "A", "x", "n")
			r.Warn(claimWithUID("1"), "A", "x", "m")
		}, []string{"Warning A n", "Warning A m"}},
		"another object is recorded": {func(r *events.Reporter) { r.Warn(claimWithUID("2"), "A", "x", "m") }, []string{"Warning A m"}},
		"another reason is recorded": {func(r *events.Reporter) { r.Warn(claimWithUID("1"), "B", "x", "m") }, []string{"Warning B m"}},
		"topics are independent": {func(r *events.Reporter) {
			r.Normal(claimWithUID("1"), "A", "y", "n")
			r.Warn(claimWithUID("1"), "A", "x", "m")
		}, []string{"Normal A n"}},
		"NormalAlways repeats": {func(r *events.Reporter) {
			r.NormalAlways(claimWithUID("1"), "A", "m")
			r.NormalAlways(claimWithUID("1"), "A", "m")
		}, []string{"Normal A m", "Normal A m"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := record.NewFakeRecorder(10)
				r := events.NewReporter(recorder)
				r.Warn(claimWithUID("1"), "A", "x", "m")
				if got := <-recorder.Events; got != "Warning A m" {
					t.Errorf("recorded %q first", got)
				}
				tt.second(r)
				var got []string
				for len(recorder.Events) > 0 {
					got = append(got, <-recorder.Events)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events mismatch (-want +got):\n%s", diff)
				}
			})
		})
	}
}
