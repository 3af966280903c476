//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
)

// awaitHealed waits for a claim and a volume that serve, and are as something wants them.
func (s *sharing) awaitHealed(o *v1alpha1.SharedVolume, want func(pair) error) pair {
	s.Helper()
	var p pair
	s.Eventually("claim and volume are healed", func(ctx context.Context) (err error) {
		if p, err = s.pairOf(ctx, o); err != nil {
			return err
		}
		object, err := s.get(ctx, o)
		if err != nil {
			return err
		}
		serves := p.claim.Status.Phase == corev1.ClaimBound && p.volume.Status.Phase == corev1.VolumeBound &&
			p.claim.DeletionTimestamp == nil && p.volume.DeletionTimestamp == nil &&
			p.volume.Spec.ClaimRef != nil && p.volume.Spec.ClaimRef.UID == p.claim.UID && object.Status.Phase == v1alpha1.Ready
		if !serves {
			return fmt.Errorf("the claim is %s, the volume %s, the object %+v", p.claim.Status.Phase, p.volume.Status.Phase, object.Status)
		}
		return want(p)
	})
	return p
}

// TestSharedVolumeIsHealed of all that people do to claims and volumes by hand.
func TestSharedVolumeIsHealed(t *testing.T) {
	s := newSharing(t)
	s.install()
	startManager(s.World, nil)
	object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: s.accessPoint(1)})
	pvs, claims := s.Client.CoreV1().PersistentVolumes(), s.Client.CoreV1().PersistentVolumeClaims(s.Team)
	patch := func(text string) func(pair) error {
		return func(p pair) error {
			_, err := pvs.Patch(t.Context(), p.volume.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
			return err
		}
	}
	sameClaim := func(before, after pair) error {
		if before.claim.UID != after.claim.UID {
			return fmt.Errorf("the claim is another one")
		}
		return nil
	}
	tests := []struct {
		name string
		do   func(pair) error
		want func(before, after pair) error
	}{
		{"the claim is deleted", func(p pair) error { return claims.Delete(t.Context(), p.claim.Name, metav1.DeleteOptions{}) },
			func(before, after pair) error {
				if before.claim.UID == after.claim.UID || before.volume.UID != after.volume.UID {
					return fmt.Errorf("want another claim, and the same volume")
				}
				return nil
			}},
		{"the volume is deleted", func(p pair) error { return pvs.Delete(t.Context(), p.volume.Name, metav1.DeleteOptions{}) },
			func(before, after pair) error {
				if before.volume.UID == after.volume.UID {
					return fmt.Errorf("the volume is the same")
				}
				return sameClaim(before, after)
			}},
		{"the port is changed", patch(`{"spec":{"mountOptions":["port=1"]}}`), func(before, after pair) error {
			if portOption(before.volume) != portOption(after.volume) || len(before.volume.Spec.MountOptions) != len(after.volume.Spec.MountOptions) {
				return fmt.Errorf("the options are %q", after.volume.Spec.MountOptions)
			}
			return sameClaim(before, after)
		}},
		{"the volume is made one to delete", patch(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), func(before, after pair) error {
			if after.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
				return fmt.Errorf("the policy is %s", after.volume.Spec.PersistentVolumeReclaimPolicy)
			}
			return sameClaim(before, after)
		}},
		{"the annotations are taken off", patch(`{"metadata":{"annotations":null,"labels":null}}`), func(before, after pair) error {
			for _, key := range []string{wellknown.AnnotationSharedVolume, wellknown.AnnotationFileSystemID, wellknown.AnnotationAccessPointID} {
				if before.volume.Annotations[key] != after.volume.Annotations[key] {
					return fmt.Errorf("annotation %s is %q", key, after.volume.Annotations[key])
				}
			}
			return sameClaim(before, after)
		}},
		{"the volume forgets its claim", patch(`{"spec":{"claimRef":null}}`), sameClaim},
		{"the volume is taken for nobody", patch(`{"spec":{"claimRef":{"uid":null}}}`), sameClaim},
	}
	before := s.ready(object)
	end := func() {}
	for _, tt := range tests {
		t.Run(tt.name, func(*testing.T) {
			s.check(tt.do(before))
			before = s.awaitHealed(object, func(after pair) error { return tt.want(before, after) })
		})
		end()
		end = s.use(before.claim) // from now on; the volume of a claim in use is healed under it
	}
	end()
	s.told(object, wellknown.EventSharedVolumeRepaired, "somebody has deleted the volume")
	s.unshare(object)
	s.awaitUnshared(object)
}

// TestSharedVolumeInUseIsDeleted: pods keep what they use until they end.
func TestSharedVolumeInUseIsDeleted(t *testing.T) {
	s := newSharing(t)
	s.install()
	s.file("data")
	first := startManager(s.World, nil, s.withPaths())
	object := s.shared("data", v1alpha1.SharedVolumeSpec{Path: "/data"})
	p := s.ready(object)
	end := s.use(p.claim)
	s.unshare(object)
	s.await(object, v1alpha1.Deleting, "pvc-data goes when no pod uses it")
	if p, err := s.pairOf(t.Context(), object); err != nil || p.volume.DeletionTimestamp != nil || p.claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("a pod uses them, and they are %+v, %v", p, err)
	}
	first.halt() // what is left is done by whoever comes later
	end()
	startManager(s.World, nil, s.withPaths())
	s.awaitUnshared(object)
	s.wantFile("data")
}

// maxWrites is about twice what one SharedVolume's life takes.
const maxWrites = 40

// TestSharedVolumeWithACrash has the manager die before and after each of its writes.
func TestSharedVolumeWithACrash(t *testing.T) {
	err := crash.Everywhere(maxWrites, func(point *crash.Point) {
		point.Ignore = tableWrites
		t.Run(point.String(), func(t *testing.T) {
			s := newSharing(t)
			s.install()
			startTwice(s.World, point)
			object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: s.accessPoint(1)})
			s.liveThrough(object)
			t.Log(point)
		})
	})
	if err != nil {
		t.Error(err)
	}
}
