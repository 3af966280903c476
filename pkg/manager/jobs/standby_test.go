package jobs

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestStandbyKeepsNoQueue creates and deletes Jobs, root claims and volumes while a standby runs. A new leader
// adds each file system that one of those that are left is about, and those of discovery.
func TestStandbyKeepsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
		if err != nil {
			t.Fatal(err)
		}
		v, err := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner}, c, func() targets.Snapshot {
			return targets.Snapshot{FileSystems: map[string]volumes.Candidate{"fs-found": {}}, Gone: map[string]bool{"fs-gone": true}}
		})
		if err != nil {
			t.Fatal(err)
		}
		loop, err := New(fake.NewClientset(), v, Options{
			Jobs:   mountjobs.Settings{Namespace: "efs-stunnel"},
			Events: record.NewFakeRecorder(10), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-mount-fs-job-00001"}}
		_, root := volumes.RootObjects("fs-root", 0, "efs-stunnel")
		bound := volume("bound", "fs-bound", corev1.VolumeBound)
		released := volume("released", "fs-released", corev1.VolumeReleased)
		for _, object := range []any{job, root, bound, released} {
			loop.changed(nil, object)
		}
		loop.TargetsChanged()
		<-time.After(time.Minute)
		if got := loop.queue.Len(); got != 0 {
			t.Errorf("the queue of a standby has %d keys, want none", got)
		}

		for _, err := range []error{
			c.Jobs.GetStore().Add(job), c.Claims.GetStore().Add(root), c.Volumes.GetStore().Add(bound), c.Volumes.GetStore().Add(released),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"fs-job", "fs-released", "fs-root"}, slices.Sorted(slices.Values(c.FileSystems()))); diff != "" {
			t.Errorf("file systems mismatch (-want +got):\n%s", diff)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- loop.queue.Run(ctx, 0, loop.enqueueAll) }()
		<-time.After(time.Minute)
		if got := loop.queue.Len(); got != 5 {
			t.Errorf("a new leader has %d keys, want 5", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func volume(name, fileSystem string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			wellknown.AnnotationFileSystemID: fileSystem, wellknown.AnnotationPath: "/a", wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner,
		}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/a"},
		}},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}
