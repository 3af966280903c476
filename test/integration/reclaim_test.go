//go:build integration

package integration_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestReclaimPolicyOfTheVolumeDecides: the one that it has when its claim is gone, whatever the class
// says.
func TestReclaimPolicyOfTheVolumeDecides(t *testing.T) {
	t.Parallel()
	const toDelete, toRetain = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	f := newFixtureWithManager(t)
	retain := f.NewClass("retain", nil, retaining).Name
	tests := map[string]struct {
		class    string
		bound    corev1.PersistentVolumeReclaimPolicy // edit of the bound volume
		released corev1.PersistentVolumeReclaimPolicy // edit of the released volume
		stays    bool
	}{
		"delete":                    {class: f.class},
		"retain":                    {class: retain, stays: true},
		"edited-to-retain":          {class: f.class, bound: toRetain, stays: true},
		"edited-to-delete":          {class: retain, bound: toDelete},
		"released-edited-to-delete": {class: retain, released: toDelete},
	}
	volumes := map[string]provisioned{}
	for name, tt := range tests {
		p := f.provision(name, tt.class)
		f.writeFile(p.path)
		if tt.bound != "" {
			f.setReclaimPolicy(p.volume.Name, tt.bound)
		}
		f.waitForFinalizer(p.volume.Name)
		volumes[name] = p
	}
	for name, tt := range tests {
		p := volumes[name]
		f.deleteClaims(p.claim)
		if tt.released != "" {
			f.waitForPhase(p.volume.Name, corev1.VolumeReleased)
			f.setReclaimPolicy(p.volume.Name, tt.released)
		}
	}
	for name, tt := range tests {
		if p := volumes[name]; !tt.stays {
			f.WaitForVolumeDeleted(p.claim)
			f.expectNoTrace(p.path)
		}
	}
	f.syncAgain("other")
	for name, tt := range tests {
		p := volumes[name]
		if tt.stays {
			f.waitForPhase(p.volume.Name, corev1.VolumeReleased)
			f.expectFile(p.path)
		}
		f.expectEventCount(p.volume, 0, wellknown.EventVolumeFailedDelete, wellknown.EventVolumeDeleteSkipped)
	}
}

func TestVolumeDeletedBeforeItsClaimStaysUntilTheClaimIsDeleted(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.provision("data", f.class)
	f.writeFile(p.path)
	f.deleteVolume(p.volume.Name)
	f.syncAgain("other", p.claim)
	f.expectFile(p.path)
	if phase := f.getClaim(p.claim).Status.Phase; phase != corev1.ClaimBound {
		t.Errorf("the claim is %s", phase)
	}
	f.deleteClaims(p.claim)
	f.WaitForVolumeDeleted(p.claim)
	f.expectNoTrace(p.path)
}

// availableAgain returns a retained volume that an administrator has made available again, with policy
// Delete.
func (f *fixture) availableAgain(name, class string) provisioned {
	f.Helper()
	p := f.provision(name, class)
	f.writeFile(p.path)
	f.deleteClaims(p.claim)
	f.waitForPhase(p.volume.Name, corev1.VolumeReleased)
	f.patchVolume(p.volume.Name, `{"spec":{"claimRef":null}}`)
	f.waitForPhase(p.volume.Name, corev1.VolumeAvailable)
	f.setReclaimPolicy(p.volume.Name, corev1.PersistentVolumeReclaimDelete)
	f.waitForFinalizer(p.volume.Name)
	return p
}

func TestAvailableVolumeIsDeletedWithItsNextClaim(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	retain := f.NewClass("retain", nil, retaining).Name
	first := f.availableAgain("first", retain)
	second := f.provision("second", retain, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = first.volume.Name })
	f.expectFile(second.path)
	f.deleteClaims(second.claim)
	f.waitForVolumeDeleted(first.volume.Name)
	f.expectNoTrace(first.path)
}

// TestAvailableVolumeDeletedByHandLeavesItsData: no claim has released it, so its directory stays.
func TestAvailableVolumeDeletedByHandLeavesItsData(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.availableAgain("data", f.NewClass("retain", nil, retaining).Name)
	f.deleteVolume(p.volume.Name)
	f.waitForVolumeDeleted(p.volume.Name)
	f.waitForEvent(p.volume, wellknown.EventVolumeDeleteSkipped, "directory kept", "no claim has the volume", p.path)
	f.expectFile(p.path)
}
