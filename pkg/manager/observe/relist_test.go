package observe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	firstClaim  = types.UID("11111111-1111-1111-1111-111111111111")
	secondClaim = types.UID("22222222-2222-2222-2222-222222222222")
)

func volumeAt(uid types.UID, phase corev1.PersistentVolumePhase, version string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumes.VolumeName(uid), UID: "pv-" + uid, ResourceVersion: version, Annotations: map[string]string{
			wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner, wellknown.AnnotationFileSystemID: "fs-1", wellknown.AnnotationPath: "/team/data",
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "team", Name: "data", UID: uid},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/team/data"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

// relisted returns a gatherer whose caches observed the volumes before; then their watch expired, and the list has
// the volumes after.
func relisted(t *testing.T, before, after []*corev1.PersistentVolume) *Gatherer {
	t.Helper()
	listed, watched := before, watch.NewFakeWithChanSize(1, false)
	client := fake.NewClientset()
	client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PersistentVolumeList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
		for _, volume := range listed {
			list.Items = append(list.Items, *volume)
		}
		return true, list, nil
	})
	client.PrependWatchReactor("persistentvolumes", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watched, nil })
	c, err := caches.New(client, nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(decide.Settings{Provisioner: wellknown.DefaultProvisioner, Cluster: "cluster"}, c, func() targets.Snapshot {
		return targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{"fs-1": {ID: "fs-1", Port: 20490}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	if err := c.Await(ctx); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	g.directories.others(directory{"fs-1", "/team/data"}, "")
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	observed := watched
	listed, watched = after, watch.NewFakeWithChanSize(1, false)
	observed.Error(&expired)
	<-time.After(time.Minute) // for the reflector's wait
	synctest.Wait()
	if got := len(c.Volumes.GetStore().ListKeys()); got != len(after) {
		t.Fatalf("the cache has %d volumes, want %d", got, len(after))
	}
	return g
}

// TestVolumeDeletedWhileTheWatchWasExpiredCountsNoLonger: the last volume of a directory is cleaned up.
func TestVolumeDeletedWhileTheWatchWasExpiredCountsNoLonger(t *testing.T) {
	original := volumeAt(firstClaim, corev1.VolumeBound, "5")
	original.Name = "original"
	delete(original.Annotations, wellknown.AnnotationPath)
	last := volumeAt(secondClaim, corev1.VolumeReleased, "9")
	for name, deleted := range map[string]*corev1.PersistentVolume{
		"a volume of the directory":       volumeAt(firstClaim, corev1.VolumeBound, "5"),
		"one that is no longer used":      volumeAt(firstClaim, corev1.VolumeReleased, "5"),
		"a volume of the original system": original,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := relisted(t, []*corev1.PersistentVolume{deleted}, []*corev1.PersistentVolume{last})
				if got := g.directories.others(directory{"fs-1", "/team/data"}, last.Name); got != (counts{}) {
					t.Errorf("there are other volumes: %+v", got)
				}
				_, plan := g.Decide(secondClaim)
				if len(plan.Pending) != 1 || plan.Pending[0].Operation.KeepDirectory || plan.Pending[0].Operation.LeaveToOthers {
					t.Errorf("the plan is %+v, want one cleanup that removes the directory", plan)
				}
				if len(g.directories.entries) != 1 {
					t.Errorf("%d volumes are remembered", len(g.directories.entries))
				}
			})
		})
	}
}
