package claims

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestStandbyKeepsNoQueue has a day's claims of other provisioners come and go. What is left when
// it becomes the leader is added once: by claim, by volume, and by Job for a claim that is gone.
func TestStandbyKeepsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := loopOf(t, record.NewFakeRecorder(10), fake.NewClientset())
		for i := range 100_000 {
			uid := types.UID(fmt.Sprint("foreign-", i))
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "scratch", UID: uid}}
			volume := volumeFor("pv", uid)
			loop.objectChanged(nil, claim)
			loop.objectChanged(nil, volume)
			loop.objectChanged(volume, nil)
			loop.objectChanged(claim, nil)
		}
		if got := loop.decisions.Len(); got != 0 {
			t.Errorf("a standby has %d claims to decide about, want none", got)
		}
		caches := loop.gatherer.Caches
		for _, err := range []error{
			caches.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "claim"}}),
			caches.Volumes.GetStore().Add(volumeFor("kept", "gone-with-a-volume")),
			caches.Volumes.GetStore().Add(volumeFor("cart", "claim")),
			caches.Jobs.GetStore().Add(jobOf(t, setup(t))),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		go func() { ended <- loop.verdicts.Run(ctx, 0, func() {}) }()
		go func() {
			ended <- loop.queue.Run(ctx, 0, func() {
				go func() { ended <- loop.decisions.Run(ctx, 0, loop.enqueueAll) }()
			})
		}()
		synctest.Wait()
		if undecided := loop.decisions.Len(); undecided != 3 {
			t.Errorf("a new leader decides about %d claims, want 3", undecided)
		}
		stop()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func volumeFor(name string, claim types.UID) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ci", Name: "scratch", UID: claim}},
	}
}

// jobOf returns a mount Job with the operations.
func jobOf(t *testing.T, ops ...operations.Operation) *batchv1.Job {
	t.Helper()
	text, err := operations.Encode(ops)
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{wellknown.AnnotationOperations: string(text)}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-mount-fs-1-00001", Annotations: annotations}}
	job.Spec.Template.Annotations = annotations
	return job
}
