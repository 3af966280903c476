//go:build integration

package integration_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

const (
	toDelete = `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`
	toRetain = `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`
)

// policied is a claim's own wish, whatever its class says.
func policied(policy string) func(*corev1.PersistentVolumeClaim) {
	return world.WithLabels(map[string]string{wellknown.LabelReclaimPolicy: policy})
}

// TestReclaimPolicies has the policy of the volume decide, wherever it comes from and whenever
// it was edited.
func TestReclaimPolicies(t *testing.T) {
	s := newClaimsWorld(t)
	retain := s.NewClass("retain", nil, retaining).Name
	plain := func(*corev1.PersistentVolumeClaim) {}
	tests := map[string]struct {
		class string
		claim func(*corev1.PersistentVolumeClaim)
		edit  string // of the bound volume
		late  string // of the released volume
		stays bool
	}{
		"delete":                     {class: s.class, claim: plain},
		"retain":                     {class: retain, claim: plain, stays: true},
		"delete-by-label":            {class: retain, claim: policied("Delete")},
		"retain-by-label":            {class: s.class, claim: policied("Retain"), stays: true},
		"delete-edited-to-retain":    {class: s.class, claim: plain, edit: toRetain, stays: true},
		"retain-edited-to-delete":    {class: retain, claim: plain, edit: toDelete},
		"retain-deleted-after-all":   {class: retain, claim: plain, late: toDelete},
		"by-label-edited-to-retain":  {class: retain, claim: policied("Delete"), edit: toRetain, stays: true},
		"by-label-deleted-after-all": {class: s.class, claim: policied("Retain"), late: toDelete},
	}
	bound := map[string]boundVolume{}
	for name, tt := range tests {
		bound[name] = s.bound(name, tt.class, tt.claim)
	}
	for name, tt := range tests {
		s.write(bound[name].path, "data")
		if tt.edit != "" {
			s.patchVolume(bound[name].object.Name, tt.edit)
		}
		s.awaitFinalizerLikePolicy(bound[name].object.Name)
	}
	for name, tt := range tests {
		s.deleteClaims(bound[name].claim)
		if tt.late != "" {
			s.awaitPhase(bound[name].object.Name, corev1.VolumeReleased)
			s.patchVolume(bound[name].object.Name, tt.late)
		}
	}
	for name, tt := range tests {
		v := bound[name]
		if !tt.stays {
			s.AwaitVolumeGone(v.claim)
			s.wantNoTrace(v.path)
			continue
		}
		s.awaitPhase(v.object.Name, corev1.VolumeReleased)
	}
	s.pass("meanwhile")
	for name, tt := range tests {
		if tt.stays {
			s.wantFile(bound[name].path, "data")
			s.awaitPhase(bound[name].object.Name, corev1.VolumeReleased)
		}
		s.wantTold(bound[name].object, wellknown.EventVolumeFailedDelete, 0)
		s.wantTold(bound[name].object, wellknown.EventVolumeDeleteSkipped, 0)
	}
}

// awaitFinalizerLikePolicy wants the finalizer on volumes with policy Delete, and no others.
func (s *claimsWorld) awaitFinalizerLikePolicy(name string) {
	s.Helper()
	s.awaitVolume(name, "has the finalizer for its policy", func(object *corev1.PersistentVolume) string {
		deletes := object.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		if has := slices.Contains(object.Finalizers, wellknown.FinalizerVolume); has != deletes {
			return fmt.Sprintf("with policy %s it has %q", object.Spec.PersistentVolumeReclaimPolicy, object.Finalizers)
		}
		return ""
	})
}

// operations counts how often a Job did an operation of a kind for a claim.
func (s *claimsWorld) operations(claim *corev1.PersistentVolumeClaim, kind operations.Kind) int {
	s.Helper()
	times := 0
	for _, run := range s.Kubelet.Runs() {
		if run.Operations == "" {
			continue // a sweep
		}
		all, err := operations.Decode([]byte(run.Operations))
		if err != nil {
			s.Fatal(err)
		}
		for _, operation := range all {
			if operation.ClaimUID == string(claim.UID) && operation.Kind == kind {
				times++
			}
		}
	}
	return times
}

// TestVolumeDeletedBeforeItsClaim has the finalizer keep the object until the claim is gone.
func TestVolumeDeletedBeforeItsClaim(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.bound("data", s.class)
	s.write(v.path, "data")
	s.deleteVolume(v.object.Name)
	s.pass("meanwhile", v.claim)
	s.wantFile(v.path, "data")
	if phase := s.see(v.claim).Status.Phase; phase != corev1.ClaimBound {
		t.Errorf("the claim is %s", phase)
	}
	s.deleteClaims(v.claim)
	s.AwaitVolumeGone(v.claim)
	s.wantNoTrace(v.path)
}

// freed is a retained volume that an administrator has made available again, with policy Delete.
func (s *claimsWorld) freed(name, class string) boundVolume {
	s.Helper()
	v := s.bound(name, class)
	s.write(v.path, "data")
	s.deleteClaims(v.claim)
	s.awaitPhase(v.object.Name, corev1.VolumeReleased)
	s.patchVolume(v.object.Name, `{"spec":{"claimRef":null}}`)
	s.awaitPhase(v.object.Name, corev1.VolumeAvailable)
	s.patchVolume(v.object.Name, toDelete)
	s.awaitFinalizerLikePolicy(v.object.Name)
	return v
}

// TestVolumeIsGivenToAnotherClaim has retained data used again, and deleted with its new claim.
func TestVolumeIsGivenToAnotherClaim(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.freed("first", s.NewClass("retain", nil, retaining).Name)
	second := s.bound("second", v.object.Spec.StorageClassName, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeName = v.object.Name
	})
	s.wantFile(second.path, "data")
	s.deleteClaims(second.claim)
	s.awaitNoVolume(v.object.Name)
	s.wantNoTrace(v.path)
}

// TestVolumeOfNobodyIsDeleted deletes the object of retained data that no claim has. Nobody said
// that the data is to go.
func TestVolumeOfNobodyIsDeleted(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.freed("first", s.NewClass("retain", nil, retaining).Name)
	s.deleteVolume(v.object.Name)
	s.awaitNoVolume(v.object.Name)
	s.awaitTold(v.object, wellknown.EventVolumeDeleteSkipped, "its directory stays", "no claim has the volume", v.path)
	s.wantFile(v.path, "data")
}
