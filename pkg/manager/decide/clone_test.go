package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// copies has the claim be a copy of claim source, which is bound.
func copies(t *testing.T) func(*fixture) {
	source := newClaim()
	source.Name, source.UID, source.Status.Phase = "source", otherUID, corev1.ClaimBound
	volume := newVolume(t, func(v *corev1.PersistentVolume) {
		v.Name = volumes.VolumeName(otherUID)
		v.Spec.ClaimRef.Name, v.Spec.ClaimRef.UID = source.Name, otherUID
		v.Spec.NFS.Path, v.Annotations[wellknown.AnnotationPath] = "/shop/source", "/shop/source"
	})
	source.Spec.VolumeName = volume.Name
	return func(w *fixture) {
		if w.Claim != nil {
			w.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		}
		w.Named = func(_, name string) volumes.Source {
			if name != "source" {
				return volumes.Source{}
			}
			return volumes.Source{Claim: source, Volume: volume}
		}
	}
}

func clone(policy string) operations.Operation {
	o := ofPolicy(policy)
	o.Kind = operations.Clone
	o.Source = operations.Source{SourcePath: "/shop/source", SourceVolume: volumes.VolumeName(otherUID), SourceClaim: "source", SourceClaimUID: string(otherUID)}
	return o
}

func abandoned() operations.Operation {
	o := clone("Delete")
	o.Source, o.Abandon = operations.Source{}, true
	return o
}

func withoutSource(w *fixture) {
	w.Named = func(string, string) volumes.Source { return volumes.Source{} }
}

func TestPlanClone(t *testing.T) {
	first := want{kind: operations.Clone, attempt: 1}
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   want
	}{
		"new":                                  {nil, first},
		"its source is missing":                {[]func(*fixture){withoutSource}, want{wait: `waiting: claim "source", which is to be copied, does not exist`}},
		"runs":                                 {[]func(*fixture){withAttempts(running(clone("Delete")))}, want{running: true}},
		"done":                                 {[]func(*fixture){withAttempts(ended(clone("Delete"), done))}, want{creates: true}},
		"stopped, goes on at once":             {[]func(*fixture){withAttempts(ended(clone("Delete"), stopped))}, first},
		"stopped, its source is missing since": {[]func(*fixture){withoutSource, withAttempts(ended(clone("Delete"), stopped))}, first},
		"lost":                                 {[]func(*fixture){withAttempts(ended(clone("Delete"), lost))}, want{kind: operations.Clone, attempt: 2, failed: true}},
		"failed":                               {[]func(*fixture){withAttempts(ended(clone("Delete"), failed))}, want{kind: operations.Clone, attempt: 2, due: now, failed: true}},
		"failed, its source is missing since":  {[]func(*fixture){withoutSource, withAttempts(ended(clone("Delete"), failed))}, want{wait: `waiting: claim "source", which is to be copied, does not exist`}},
		"claim gone, runs":                     {[]func(*fixture){withoutClaim, withAttempts(running(clone("Delete")))}, want{running: true}},
		"claim gone, done":                     {[]func(*fixture){withoutClaim, withAttempts(ended(clone("Delete"), done))}, want{creates: true}},
		"claim gone, done, Retain":             {[]func(*fixture){withoutClaim, withAttempts(ended(clone("Retain"), done))}, want{}},
		"on a gone file system":                {[]func(*fixture){withoutClaim, goneButAnother, withAttempts(ended(clone("Delete"), failed))}, want{used: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, Decide(newState(append([]func(*fixture){copies(t)}, c.change...)...)))
		})
	}
}

func TestCopyOfADeletedClaimIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		attempt Attempt
		due     time.Time
	}{
		"stopped":                 {ended(clone("Delete"), stopped), time.Time{}},
		"lost":                    {ended(clone("Delete"), lost), time.Time{}},
		"failed":                  {ended(clone("Delete"), failed), now},
		"failed, policy Retain":   {ended(clone("Retain"), failed), now},
		"its removal was stopped": {ended(abandoned(), stopped), time.Time{}},
		"its removal has failed":  {ended(abandoned(), failed), now},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(newState(withoutClaim, withAttempts(c.attempt)))
			if len(plan.Pending) != 1 || len(plan.Changes) > 0 {
				t.Fatalf("got %+v", plan)
			}
			got := plan.Pending[0]
			if !got.Operation.Abandon || got.Operation.Kind != operations.Clone || got.Operation.Source != (operations.Source{}) || got.Operation.Path != path ||
				got.FileSystemID != fs1 || !got.Due.Equal(c.due) || got.Claim != uid {
				t.Errorf("got %+v", got)
			}
		})
	}
	for name, a := range map[string]Attempt{"removed": ended(abandoned(), done), "used": used(ended(clone("Delete"), failed))} {
		if plan := Decide(newState(withoutClaim, withAttempts(a))); len(plan.Pending) > 0 || len(plan.Changes) > 0 {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// Without its Job, nothing would know that a copy has begun.
func TestJobOfAnUnfinishedCopyStays(t *testing.T) {
	volume := Traces{Volume: volumes.Read(newVolume(t), provisioner)}
	for name, c := range map[string]struct {
		attempt Attempt
		traces  Traces
		want    bool
	}{
		"failed":                   {ended(clone("Delete"), failed), Traces{}, false},
		"failed, claim gone":       {ended(clone("Retain"), failed), Traces{Abandoned: true}, false},
		"lost":                     {ended(clone("Delete"), lost), Traces{}, false},
		"tried again":              {ended(clone("Delete"), failed), Traces{Superseded: true}, true},
		"there is a volume":        {ended(clone("Delete"), lost), volume, true},
		"done":                     {ended(clone("Delete"), done), Traces{}, false},
		"done, there is a volume":  {ended(clone("Delete"), done), volume, true},
		"done, claim gone, Retain": {ended(clone("Retain"), done), Traces{Abandoned: true}, true},
		"not removed":              {ended(abandoned(), failed), Traces{Abandoned: true}, false},
		"removed":                  {ended(abandoned(), done), Traces{Abandoned: true}, true},
	} {
		if got := c.attempt.IsUsed(c.traces); got != c.want {
			t.Errorf("%s: used is %v", name, got)
		}
	}
}

func TestRemovedCopyFillsTheTrash(t *testing.T) {
	kept := operations.Result{State: operations.Done, Reason: operations.NotOwned}
	if !FillsTrash(ended(abandoned(), done)) || !FillsTrash(ended(abandoned(), kept)) || FillsTrash(ended(abandoned(), failed)) || FillsTrash(ended(clone("Delete"), done)) {
		t.Error("a sweep follows the removal of a copy, and nothing else about a clone")
	}
}

func TestFailedCloneSaysWhatItCopied(t *testing.T) {
	for _, change := range Decide(newState(copies(t), withAttempts(ended(clone("Delete"), failed)))).Changes {
		if w, ok := change.(Warn); ok && strings.Contains(w.Message, "could not copy claim source: it is nested") {
			return
		}
	}
	t.Error("no event says it")
}
