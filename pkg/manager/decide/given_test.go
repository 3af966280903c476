package decide

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// givenTo reserves the claim's volume for a claim of another namespace, and binds it.
func givenTo(claim types.UID) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "bank", Name: "till", UID: claim}
	}
}

func boundElsewhere(claim types.UID) *corev1.PersistentVolumeClaim {
	c := newClaim()
	c.Namespace, c.Name, c.UID, c.Spec.VolumeName = "bank", "till", claim, volumes.VolumeName(uid)
	return c
}

// gift returns the operation that enters the claim of a given volume into the ledger.
func gift(t *testing.T, claim types.UID) operations.Operation {
	return volumes.Gift(volumes.Read(newVolume(t, givenTo(claim)), provisioner), cluster)
}

// TestVolumeOfAnotherClaimIsEnteredOnce for each claim that it is given to.
func TestVolumeOfAnotherClaimIsEnteredOnce(t *testing.T) {
	taken := operations.Result{State: operations.Failed, Reason: operations.VolumeNameTaken}
	noted := func(v *corev1.PersistentVolume) { v.Annotations[wellknown.AnnotationGivenTo] = string(otherUID) }
	type outcome struct{ asked, noted, running, failed bool }
	for name, c := range map[string]struct {
		edit     func(*corev1.PersistentVolume)
		attempts []Attempt
		want     outcome
	}{
		"just bound":                {nil, nil, outcome{asked: true}},
		"being entered":             {nil, []Attempt{running(gift(t, otherUID))}, outcome{running: true}},
		"another's being entered":   {nil, []Attempt{running(gift(t, "earlier"))}, outcome{running: true}},
		"entered":                   {nil, []Attempt{ended(gift(t, otherUID), done)}, outcome{noted: true}},
		"another's name in it":      {nil, []Attempt{ended(gift(t, otherUID), taken)}, outcome{noted: true}},
		"refused":                   {nil, []Attempt{ended(gift(t, otherUID), failed)}, outcome{asked: true, failed: true}},
		"lost":                      {nil, []Attempt{ended(gift(t, otherUID), lost)}, outcome{asked: true, failed: true}},
		"entered for another claim": {nil, []Attempt{ended(gift(t, "earlier"), done), ended(gift(t, otherUID), done)}, outcome{asked: true}},
		"noted":                     {noted, nil, outcome{}},
		"released":                  {released, nil, outcome{}},
		"available":                 {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable }, nil, outcome{}},
		"of its own claim":          {givenTo(uid), nil, outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			object := newVolume(t, retained, noFinalizer, givenTo(otherUID))
			if c.edit != nil {
				c.edit(object)
			}
			s := newState(withoutClaim, withAttempts(c.attempts...))
			s.Volumes = []Volume{{Volume: volumes.Read(object, provisioner), Claim: boundElsewhere(object.Spec.ClaimRef.UID)}}
			plan := Decide(s)
			got := outcome{asked: len(plan.Pending) == 1, running: !plan.RunningUntil.Equal(time.Time{})}
			for _, change := range plan.Changes {
				a, _ := change.(Annotate)
				noted := a.Annotations[wellknown.AnnotationGivenTo] == string(object.Spec.ClaimRef.UID)
				warning, _ := change.(Warn)
				got.noted, got.failed = got.noted || noted, got.failed || warning.Reason == wellknown.EventVolumeEntryFailed
			}
			if got != c.want {
				t.Errorf("got %+v of %+v, want %+v", got, plan, c.want)
			}
		})
	}
}

func TestGiftKeepsTheOwnerOfTheLedger(t *testing.T) {
	s := newState(withoutClaim)
	s.Volumes = []Volume{{Volume: volumes.Read(newVolume(t, givenTo(otherUID)), provisioner), Claim: boundElsewhere(otherUID)}}
	o := Decide(s).Pending[0].Operation
	want := operations.Owner{Volume: volumes.VolumeName(uid), Cluster: cluster, Namespace: "bank", Claim: "till", ClaimUID: string(uid), Class: "efs"}
	if o.Owner != want || !o.Adopt || o.Made || !o.ShareAcrossNamespaces || !o.ShareAcrossClusters || o.Path != path {
		t.Errorf("a given volume is entered by %+v", o)
	}
	if again := try(o, 2); again.GivenTo != string(otherUID) || adoption().GivenTo != "" {
		t.Errorf("it is for claim %q, and an adoption for %q", again.GivenTo, adoption().GivenTo)
	}
}

// TestGiftIsUsedWhenItIsNoted or when the volume is another claim's by then.
func TestGiftIsUsedWhenItIsNoted(t *testing.T) {
	for name, c := range map[string]struct {
		attempt Attempt
		noted   types.UID
		want    bool
	}{
		"not noted":              {ended(gift(t, otherUID), done), "", false},
		"noted for another":      {ended(gift(t, otherUID), done), "earlier", false},
		"noted":                  {ended(gift(t, otherUID), done), otherUID, true},
		"of another claim":       {ended(gift(t, "earlier"), done), "", true},
		"refused, and not noted": {ended(gift(t, otherUID), failed), "", false},
	} {
		object := newVolume(t, givenTo(otherUID))
		object.Annotations[wellknown.AnnotationGivenTo] = string(c.noted)
		if got := c.attempt.IsUsed(Traces{Volume: volumes.Read(object, provisioner), Claim: boundElsewhere(otherUID)}); got != c.want {
			t.Errorf("%s: used is %v", name, got)
		}
	}
}
