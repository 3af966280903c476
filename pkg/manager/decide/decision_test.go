package decide

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func noPorts(w *fixture) { w.Targets = targets.Snapshot{Problem: "the table to be mended"} }

// TestUnsettledDecisionIsMadeAgain: what no event about the claim would change is decided again after a time.
func TestUnsettledDecisionIsMadeAgain(t *testing.T) {
	free := withVolume(newVolume(t, released))
	others := withVolume(newVolume(t, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = otherUID }))
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   bool
		text   string // a part of what is reported
	}{
		"waits for a mount Job":             {nil, true, ""},
		"waits for a file system":           {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems[fs1] = volumes.Candidate{ID: fs1, Unusable: "it is creating"} }}, true, "it is creating"},
		"is refused":                        {[]func(*fixture){func(w *fixture) { w.Class.Parameters = map[string]string{"x": "y"} }}, true, `"x"`},
		"its volume's name is taken":        {[]func(*fixture){others}, true, "another claim's"},
		"a mount Job runs":                  {[]func(*fixture){withAttempts(running(setup()))}, false, ""},
		"its volume is made":                {[]func(*fixture){withAttempts(ended(setup(), done))}, false, ""},
		"its volume waits for the table":    {[]func(*fixture){noPorts, withAttempts(ended(setup(), done))}, true, "mended"},
		"is bound":                          {[]func(*fixture){boundClaim, withVolume(newVolume(t))}, false, ""},
		"a file system is not known":        {[]func(*fixture){withoutClaim, free, func(w *fixture) { w.Targets.FileSystems = nil }}, true, "is not known"},
		"no file system is known yet":       {[]func(*fixture){withoutClaim, free, noPorts}, false, ""},
		"its volume is deleted":             {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), done))}, false, ""},
		"without its claim":                 {[]func(*fixture){withoutClaim}, false, ""},
		"an original one cannot be adopted": {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released))}, true, "was not seen bound"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(newState(c.change...))
			if plan.Unsettled != c.want || !strings.Contains(warnings(plan), c.text) {
				t.Errorf("unsettled is %t, reported %q; want %t and …%s…", plan.Unsettled, warnings(plan), c.want, c.text)
			}
		})
	}
}

func warnings(p Plan) string {
	var text strings.Builder
	for _, change := range p.Changes {
		if warn, ok := change.(Warn); ok {
			text.WriteString(warn.Message + "\n")
		}
	}
	return text.String()
}

// TestVolumeOfTheClaimsName expects a report where the volume of the claim's name is another claim's.
func TestVolumeOfTheClaimsName(t *testing.T) {
	refers := func(namespace, name string, to string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
			v.Spec.ClaimRef.UID = map[string]corev1.ObjectReference{"own": {UID: uid}, "other": {UID: otherUID}}[to].UID
		}
	}
	leaving := func(v *corev1.PersistentVolume) { at := metav1.NewTime(now); v.DeletionTimestamp = &at }
	for name, c := range map[string]struct {
		edits []func(*corev1.PersistentVolume)
		claim func(*fixture)
		want  bool
	}{
		"of the claim":                     {[]func(*corev1.PersistentVolume){refers("shop", "cart", "own")}, nil, false},
		"meant for the claim by name":      {[]func(*corev1.PersistentVolume){refers("shop", "cart", "")}, nil, false},
		"of an earlier claim of the name":  {[]func(*corev1.PersistentVolume){refers("shop", "cart", "other")}, nil, true},
		"meant for another claim":          {[]func(*corev1.PersistentVolume){refers("shop", "basket", "")}, nil, true},
		"meant for another namespace":      {[]func(*corev1.PersistentVolume){refers("office", "cart", "")}, nil, true},
		"of no claim":                      {[]func(*corev1.PersistentVolume){func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }}, nil, true},
		"being deleted":                    {[]func(*corev1.PersistentVolume){refers("shop", "cart", "other"), leaving}, nil, false},
		"and the claim asks another":       {[]func(*corev1.PersistentVolume){refers("shop", "cart", "other")}, func(w *fixture) { w.Class.Provisioner = "other" }, false},
		"and the claim is gone":            {[]func(*corev1.PersistentVolume){refers("shop", "cart", "other")}, withoutClaim, false},
		"of another claim, another volume": {[]func(*corev1.PersistentVolume){refers("shop", "cart", "other"), func(v *corev1.PersistentVolume) { v.Name = "pvc-other" }}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(withVolume(newVolume(t, c.edits...)), func(w *fixture) {
				if c.claim != nil {
					c.claim(w)
				}
			})
			if got := strings.Contains(warnings(s.planClaim()), "is another claim's"); got != c.want {
				t.Errorf("reported as a conflict: %t, want %t", got, c.want)
			}
		})
	}
}

// TestAnnotationsOfAClaim compares the annotations that the plan changes; nil removes one.
func TestAnnotationsOfAClaim(t *testing.T) {
	const why = "the class is refused"
	rejected := func(w *fixture) {
		w.Claim.Annotations[wellknown.AnnotationRejected], w.Claim.Annotations[wellknown.AnnotationRejectReason] = wellknown.ValueTrue, why
	}
	askedOther := func(w *fixture) { w.Claim.Annotations[wellknown.AnnotationStorageProvisioner] = "other" }
	badClass := func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} }
	_, _, refusal := newState(badClass).begin()
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   map[string]any
	}{
		"accepted":                      {nil, nil},
		"refused":                       {[]func(*fixture){badClass}, map[string]any{wellknown.AnnotationRejected: wellknown.ValueTrue, wellknown.AnnotationRejectReason: refusal.Error()}},
		"refused for another reason":    {[]func(*fixture){badClass, rejected}, map[string]any{wellknown.AnnotationRejectReason: refusal.Error()}},
		"accepted by now":               {[]func(*fixture){rejected}, map[string]any{wellknown.AnnotationRejected: nil, wellknown.AnnotationRejectReason: nil}},
		"bound by now":                  {[]func(*fixture){rejected, withVolume(newVolume(t))}, map[string]any{wellknown.AnnotationRejected: nil, wellknown.AnnotationRejectReason: nil}},
		"another installation's":        {[]func(*fixture){rejected, givenUp("before"), askedOther}, nil},
		"its node is given back":        {[]func(*fixture){onNode("b"), zonesOf("a")}, map[string]any{wellknown.AnnotationSelectedNode: nil}},
		"its node is kept":              {[]func(*fixture){onNode("a"), zonesOf("a")}, nil},
		"tried again after it gave up":  {[]func(*fixture){givenUp("before")}, map[string]any{wellknown.AnnotationGivenUp: nil}},
		"its volume is made from a Job": {[]func(*fixture){rejected, withAttempts(ended(setup(), done))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]any
			for _, change := range Decide(newState(c.change...)).Changes {
				if annotate, ok := change.(Annotate); ok {
					got = annotate.Annotations
				}
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("annotated with %v, want %v", got, c.want)
			}
		})
	}
}

// TestSetupJoinsADirectoryInUse, which has another claim's data; a restore never does.
func TestSetupJoinsADirectoryInUse(t *testing.T) {
	restore := func(w *fixture) { w.Claim.Annotations[wellknown.AnnotationRestore] = string(otherUID) }
	usedOn := func(id string) func(*fixture) { return func(w *fixture) { w.inUse = map[string]string{path: id} } }
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   bool
	}{
		"new":                         {nil, false},
		"in use":                      {[]func(*fixture){usedOn(fs1)}, true},
		"in use on another":           {[]func(*fixture){usedOn(fs2)}, false},
		"restored, and in use anyway": {[]func(*fixture){usedOn(fs1), restore}, false},
	} {
		pending := Decide(newState(c.change...)).Pending
		if len(pending) != 1 || pending[0].Operation.Joins != c.want || pending[0].Claim != uid {
			t.Errorf("%s: %+v, want one that joins: %t", name, pending, c.want)
		}
	}
}

func TestFailureSaysWhenItIsTriedAgain(t *testing.T) {
	due := now.Add(3 * backoff).Format("15:04:05 MST")
	for name, c := range map[string]struct {
		attempt Attempt
		want    string
	}{
		"after a wait": {ended(try(setup(), 3), failed), "could not make the directory: it is nested (attempt 3; next at " + due + ")\n"},
		"at once":      {ended(setup(), refused), "could not make the directory: it is another file system\n"},
	} {
		if got := warnings(Decide(newState(withAttempts(c.attempt)))); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: reported %q, want …%q", name, got, c.want)
		}
	}
}

// TestTurn: those that wait longest go first, and a failure moves an operation behind those it delays.
func TestTurn(t *testing.T) {
	for name, c := range map[string]struct{ since, due, want time.Duration }{
		"never failed": {-time.Hour, -1000 * time.Hour, -time.Hour},
		"failed":       {-time.Hour, time.Minute, time.Minute},
		"due by now":   {-time.Hour, -time.Minute, -time.Minute},
	} {
		if got := (Pending{Since: now.Add(c.since), Due: now.Add(c.due)}).Turn(); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: its turn is %s", name, got)
		}
	}
}

// TestPlanEndsWithTheFirstRunningJob when claim and volume both have one.
func TestPlanEndsWithTheFirstRunningJob(t *testing.T) {
	until := func(a Attempt, after time.Duration) Attempt {
		a.Until = now.Add(after)
		return a
	}
	second := newVolume(t, released, func(v *corev1.PersistentVolume) { v.Name = "pvc-second" })
	leaving := cleanup()
	leaving.Volume = second.Name
	for name, c := range map[string]struct{ claim, volume time.Duration }{
		"the claim's":  {time.Minute, time.Hour},
		"the volume's": {time.Hour, time.Minute},
	} {
		plan := Decide(newState(withoutClaim, withVolume(second), withAttempts(until(running(setup()), c.claim), until(running(leaving), c.volume))))
		if !plan.RunningUntil.Equal(now.Add(time.Minute)) {
			t.Errorf("%s ends first: until %s", name, plan.RunningUntil)
		}
	}
}

func TestOnlyADirectoryThatMayBeMovedFillsTheTrash(t *testing.T) {
	for name, c := range map[string]struct {
		attempt Attempt
		want    bool
	}{
		"cleaned":                  {ended(cleanup(), done), true},
		"cleaned, directory stays": {ended(cleanup(), operations.Result{State: operations.Done, Reason: operations.Retained}), false},
		"cleanup failed":           {ended(cleanup(), failed), false},
		"cleanup lost":             {ended(cleanup(), lost), true},
		"set up":                   {ended(setup(), done), false},
	} {
		if got := FillsTrash(c.attempt); got != c.want {
			t.Errorf("%s: it fills the trash: %t", name, got)
		}
	}
}

// TestClaimLearnsItsNewSize once the volume has it.
func TestClaimLearnsItsNewSize(t *testing.T) {
	grown := newVolume(t, func(v *corev1.PersistentVolume) {
		v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
	})
	plan := Decide(newState(boundClaim, func(w *fixture) {
		w.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	}, withVolume(grown)))
	if len(plan.Changes) != 1 {
		t.Fatalf("planned %+v", plan.Changes)
	}
	if c, ok := plan.Changes[0].(ExpandClaim); !ok || c.Size.String() != "2Gi" || c.Object.Name != grown.Name {
		t.Errorf("planned %+v", plan.Changes[0])
	}
}

// TestCleanupWaitsSinceItsVolumeWasReleased, or deleted, which orders it among others.
func TestCleanupWaitsSinceItsVolumeWasReleased(t *testing.T) {
	at := metav1.NewTime(now.Add(-time.Second))
	gone := newVolume(t, released, func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &at })
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		want   time.Time
	}{
		"released": {newVolume(t, released), now.Add(-time.Hour)},
		"deleted":  {gone, at.Time},
	} {
		pending := Decide(newState(withoutClaim, withVolume(c.volume))).Pending
		if len(pending) != 1 || !pending[0].Since.Equal(c.want) {
			t.Errorf("%s: %+v, want one since %s", name, pending, c.want)
		}
	}
}
