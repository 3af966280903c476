package jobs

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// The next sweep's time must outlive a root claim that is being made again, or directories whose time
// to keep is over stay in the trash until another volume is deleted.
func TestSweepIsRecordedOnceRootClaimOrVolumeExists(t *testing.T) {
	root, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	for name, c := range map[string]struct {
		root     *corev1.PersistentVolumeClaim
		volume   *corev1.PersistentVolume
		unlisted bool
		record   bool
	}{
		"claim and volume":                    {root: root, volume: volume, record: true},
		"volume only":                         {volume: volume, record: true},
		"neither waits":                       {},
		"neither, file system left the table": {unlisted: true, record: true},
	} {
		s := withSweeps(nil, c.root, in(30, swept(ago(time.Second), mountjobs.Succeeded, now, true)))
		s.RootVolume, s.Listed = c.volume, !c.unlisted
		var p plan
		p.AddTask(s.sweep())
		recorded := slices.ContainsFunc(p.Steps, func(change any) bool {
			_, ok := change.(background.Record)
			return ok
		})
		if recorded != c.record || !c.record && len(p.Steps) > 0 || p.Again.IsZero() == !c.record {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}

func TestNextSweepIsRecordedOnTheRootVolumeWithoutAClaim(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: volumes.RootName(fileSystem), UID: "volume", Annotations: map[string]string{wellknown.AnnotationNextSweep: background.NoSweep},
	}}
	volume.Spec.NFS = &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress}
	s := withSweeps(nil, nil, in(30, swept(ago(time.Second), mountjobs.Succeeded, now, true)))
	s.RootVolume, s.Listed = volume, true
	l := newLoop(t)
	if err := l.client.Tracker().Add(volume.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := l.client.Tracker().Add(s.sweeps[0].Job); err != nil {
		t.Fatal(err)
	}
	var p plan
	p.AddTask(s.sweep())
	if _, err := l.apply(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	got, err := l.client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at, want := got.Annotations[wellknown.AnnotationNextSweep], now.Add(30*time.Second).Format(time.RFC3339); at != want {
		t.Errorf("the next sweep is at %q, want %q", at, want)
	}
}

// TestOnlyTheNewestSweepIsRecorded: what an older one has found is out of date.
func TestOnlyTheNewestSweepIsRecorded(t *testing.T) {
	ended := func(name string, unreleased bool) background.Job {
		sweep := swept(ago(time.Minute), mountjobs.Succeeded, now.Add(time.Hour), unreleased)
		sweep.Job.Name = name
		return sweep
	}
	running := swept(ago(time.Second), mountjobs.Running, time.Time{}, true)
	for name, c := range map[string]struct {
		sweeps             []background.Job
		recorded, released []string
	}{
		"the newest":                    {[]background.Job{ended("1", false), ended("2", true)}, []string{"2"}, nil},
		"the newest of two":             {[]background.Job{ended("1", true), ended("2", true)}, []string{"2"}, []string{"1"}},
		"the newest of three":           {[]background.Job{ended("1", true), ended("2", true), ended("3", true)}, []string{"3"}, []string{"1", "2"}},
		"the newest was recorded":       {[]background.Job{ended("1", true), ended("2", false)}, nil, []string{"1"}},
		"the newest runs":               {[]background.Job{ended("1", true), running}, nil, []string{"1"}},
		"all were recorded":             {[]background.Job{ended("1", false), ended("2", false)}, nil, nil},
		"an older one is still running": {[]background.Job{running, ended("2", true)}, nil, nil},
	} {
		var p plan
		p.AddTask(withSweeps(nil, &corev1.PersistentVolumeClaim{}, c.sweeps...).sweep())
		var recorded, released []string
		for _, change := range changesOf[background.Record](p) {
			recorded = append(recorded, change.Job.Job.Name)
		}
		for _, change := range changesOf[background.Release](p) {
			released = append(released, change.Job.Name)
		}
		if !slices.Equal(recorded, c.recorded) || !slices.Equal(released, c.released) || len(changesOf[background.Create](p)) > 0 {
			t.Errorf("%s: recorded %q, released %q; want %q and %q", name, recorded, released, c.recorded, c.released)
		}
	}
}
