package decide

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	gibi  = 1 << 30
	grown = 2 * gibi
)

func onServer(w *fixture) { w.Targets.Servers = map[string]bool{fs1: true} }

func grownClaim(w *fixture) {
	w.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
}

func recorded(size string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Annotations[wellknown.AnnotationRecordedSize] = size }
}

func limit(t *testing.T, size int64) operations.Operation {
	o := volumes.Adoption(volumes.Read(newVolume(t), provisioner), cluster)
	o.Made, o.Size = false, size
	return o
}

// TestServersLedgerGrowsBeforeTheVolume does, and no other ledger.
func TestServersLedgerGrowsBeforeTheVolume(t *testing.T) {
	readOnly := func(v *corev1.PersistentVolume) {
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
	taken := operations.Result{State: operations.Failed, Reason: operations.VolumeNameTaken}
	type outcome struct {
		asks, notes        int64
		expands, isRunning bool
		reports, tells     bool // the volume; the claim
	}
	all := func(change ...func(*fixture)) []func(*fixture) {
		return append([]func(*fixture){boundClaim, grownClaim, onServer}, change...)
	}
	of := func(change ...func(*corev1.PersistentVolume)) func(*fixture) {
		return withVolume(newVolume(t, change...))
	}
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   outcome
	}{
		"grown":                    {all(of(recorded("1073741824"))), outcome{asks: grown}},
		"grown, on EFS":            {[]func(*fixture){boundClaim, grownClaim, of()}, outcome{expands: true}},
		"grown, read-only":         {all(of(readOnly)), outcome{expands: true}},
		"of an earlier version":    {[]func(*fixture){boundClaim, onServer, of()}, outcome{asks: gibi}},
		"recorded as it is":        {[]func(*fixture){boundClaim, onServer, of(recorded("1073741824"))}, outcome{}},
		"recorded as no number":    {[]func(*fixture){boundClaim, onServer, of(recorded("all"))}, outcome{asks: gibi}},
		"not bound":                {[]func(*fixture){grownClaim, onServer, of()}, outcome{}},
		"being entered":            {all(of(), withAttempts(running(limit(t, grown)))), outcome{isRunning: true}},
		"another size was entered": {all(of(), withAttempts(ended(limit(t, gibi), done))), outcome{asks: grown}},
		"entered":                  {all(of(), withAttempts(ended(limit(t, grown), done))), outcome{notes: grown}},
		"entered, server is gone":  {all(of(), withAttempts(ended(limit(t, grown), done)), func(w *fixture) { w.Targets.Servers = nil }), outcome{notes: grown}},
		"no directory":             {all(of(), withAttempts(ended(limit(t, grown), notFound))), outcome{notes: grown}},
		"another cluster's":        {all(of(), withAttempts(ended(limit(t, grown), taken))), outcome{notes: grown}},
		"refused":                  {all(of(), withAttempts(ended(limit(t, grown), failed))), outcome{asks: grown, reports: true, tells: true}},
		"refused, not grown":       {[]func(*fixture){boundClaim, onServer, of(), withAttempts(ended(limit(t, gibi), failed))}, outcome{asks: gibi, reports: true}},
		"lost":                     {all(of(), withAttempts(ended(limit(t, grown), lost))), outcome{asks: grown, reports: true, tells: true}},
		"noted":                    {all(of(recorded("2147483648"))), outcome{expands: true}},
		"waits for another":        {all(of(), withAttempts(ended(cleanup(), failed))), outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(newState(c.change...))
			got := outcome{isRunning: !plan.RunningUntil.IsZero()}
			for _, pending := range plan.Pending {
				if got.asks += pending.Operation.Size; pending.Operation.Made {
					t.Errorf("the operation gives the right to remove the directory: %+v", pending.Operation)
				}
			}
			for _, change := range plan.Changes {
				switch c := change.(type) {
				case Annotate:
					text, _ := c.Annotations[wellknown.AnnotationRecordedSize].(string)
					got.notes, _ = strconv.ParseInt(text, 10, 64)
				case ExpandVolume:
					got.expands = true
				case Warn:
					claim, isClaim := c.Object.(*corev1.PersistentVolumeClaim)
					got.reports = got.reports || !isClaim && c.Reason == wellknown.EventVolumeEntryFailed && c.Cause == status.EntryFailed
					got.tells = got.tells || isClaim && claim.Name == "cart" && c.Reason == wellknown.EventVolumeResizeFailed &&
						strings.Contains(c.Message, "keeps 1Gi: Job efs-mount-fs-00000001-00001 could not enter 2Gi")
				}
			}
			if got != c.want {
				t.Errorf("got %+v of %+v, want %+v", got, plan, c.want)
			}
		})
	}
}

// TestSizeIsEnteredWithTheOwner on servers of one's own, and on them only.
func TestSizeIsEnteredWithTheOwner(t *testing.T) {
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   int64
	}{
		"on EFS":      {nil, 0},
		"on a server": {[]func(*fixture){onServer}, gibi},
	} {
		plan := Decide(newState(c.change...))
		if len(plan.Pending) != 1 || plan.Pending[0].Operation.Size != c.want {
			t.Errorf("%s: got %+v, want size %d", name, plan.Pending, c.want)
		}
	}
}

func TestSizeIsUsedWhenItIsNoted(t *testing.T) {
	s := newState(boundClaim, grownClaim)
	for name, c := range map[string]struct {
		attempt Attempt
		object  *corev1.PersistentVolume
		want    bool
	}{
		"not noted":    {ended(limit(t, grown), done), newVolume(t), false},
		"noted":        {ended(limit(t, grown), done), newVolume(t, recorded("2147483648")), true},
		"grown since":  {ended(limit(t, gibi), done), newVolume(t), true},
		"refused":      {ended(limit(t, grown), failed), newVolume(t), true},
		"its claim is": {ended(limit(t, grown), done), newVolume(t, released, givenTo("other")), true},
	} {
		if got := c.attempt.IsUsed(Traces{Volume: volumes.Read(c.object, provisioner), Claim: s.Claim}); got != c.want {
			t.Errorf("%s: used is %v", name, got)
		}
	}
	if !ended(limit(t, grown), done).IsUsed(Traces{}) {
		t.Error("without a volume, it is not used")
	}
}
