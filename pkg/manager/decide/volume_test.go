package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// fate has the parts of a volume's plan that tests compare.
type fate struct {
	kind            operations.Kind
	due             time.Time
	blockers        int
	shared, kept    bool
	add, remove     bool
	gone, adopt     bool
	deletes         bool
	skipped, failed bool
	informed        bool // of a directory that stays, without a warning
	problem         bool
	running         bool
	grows           bool
	says            Verdict // what it is annotated with
}

func fateOf(t *testing.T, p Plan) (f fate) {
	t.Helper()
	f = fate{running: !p.RunningUntil.IsZero()}
	for _, pending := range p.Pending {
		f.kind, f.due, f.blockers = pending.Operation.Kind, pending.Due, len(pending.Blockers)
		f.shared, f.kept = pending.Operation.LeaveToOthers, pending.Operation.KeepDirectory
	}
	var warned Verdict
	defer func() {
		if f.says != warned {
			t.Errorf("the volume says %q, and its event %q", f.says, warned)
		}
		f.says = Verdict{}
	}()
	for _, change := range p.Changes {
		switch c := change.(type) {
		case AddFinalizer:
			f.add = true
		case RemoveFinalizer:
			f.remove = true
		case AdoptVolume:
			f.adopt = true
		case DeleteVolume:
			f.deletes = true
		case ExpandVolume:
			f.grows = true
		case Warn:
			f.read(c)
			isFailure := c.Reason == wellknown.EventVolumeFailedDelete || c.Reason == wellknown.EventVolumeEntryFailed
			if isFailure {
				warned = Verdict{c.Cause, c.Message}
			}
			if notAdopted := strings.Contains(c.Message, "original provisioner"); notAdopted != (c.Cause == status.NotAdopted) ||
				isFailure != (c.Cause != "") {
				t.Errorf("%q has cause %q", c.Message, c.Cause)
			}
		case Annotate:
			text, _ := c.Annotations[wellknown.AnnotationProblem].(string)
			f.says.Cause, f.says.Message, _ = strings.Cut(text, ": ")
		case Inform:
			f.informed = c.Reason == wellknown.EventVolumeDeleteSkipped
		default:
			t.Errorf("a volume's plan has %+v", c)
		}
	}
	return f
}

func (f *fate) read(c Warn) {
	switch {
	case c.Reason == wellknown.EventFileSystemGone:
		f.gone = true
	case c.Reason == wellknown.EventVolumeDeleteSkipped:
		f.skipped = true
	case c.Topic == "problem":
		f.problem = true
	default:
		f.failed = true
	}
}

var (
	blocked  = operations.Result{State: operations.Blocked, Reason: operations.StillOwned, Owners: []operations.Owner{{Volume: "pvc-x", Cluster: cluster}}}
	notFound = operations.Result{State: operations.Failed, Reason: operations.NotFound}
)

func takingBack() operations.Operation {
	o := adoption()
	o.Made = false
	return o
}

func TestVolume(t *testing.T) {
	stays := operations.Result{State: operations.Done, Reason: operations.NotMade, Message: "it was there before"}
	shared := operations.Result{State: operations.Done, Reason: operations.StillOwned, Message: "it belongs to another"}
	deleting := func(v *corev1.PersistentVolume) { at := metav1.NewTime(now); v.DeletionTimestamp = &at }
	available := func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable }
	unadopted := func(w *fixture) { w.Volumes[0].Unadopted = newVolume(t, original) }
	bound := withVolume(newVolume(t))
	free := withVolume(newVolume(t, released))
	saved := withVolume(newVolume(t, released, retained, noFinalizer))
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   fate
	}{
		"bound":                       {[]func(*fixture){boundClaim, bound}, fate{}},
		"bound, claim has grown":      {[]func(*fixture){boundClaim, func(w *fixture) { w.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi") }, bound}, fate{grows: true}},
		"Delete without finalizer":    {[]func(*fixture){boundClaim, withVolume(newVolume(t, noFinalizer))}, fate{add: true}},
		"Retain with finalizer":       {[]func(*fixture){boundClaim, withVolume(newVolume(t, retained))}, fate{remove: true}},
		"released":                    {[]func(*fixture){withoutClaim, free}, fate{kind: operations.Cleanup}},
		"released, Retain":            {[]func(*fixture){withoutClaim, withVolume(newVolume(t, released, retained, noFinalizer))}, fate{}},
		"released, claim still there": {[]func(*fixture){boundClaim, free}, fate{}},
		"never bound, deleted":        {[]func(*fixture){withVolume(newVolume(t, deleting, func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeAvailable }))}, fate{kind: operations.Cleanup}},
		"without a claim, deleted":    {[]func(*fixture){withoutClaim, withVolume(newVolume(t, deleting, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef, v.Status.Phase = nil, corev1.VolumeAvailable }))}, fate{remove: true, skipped: true}},
		"shared":                      {[]func(*fixture){withoutClaim, free, func(w *fixture) { w.Volumes[0].Shared = true }}, fate{kind: operations.Cleanup, shared: true}},
		"shared with one that stays":  {[]func(*fixture){withoutClaim, free, func(w *fixture) { w.Volumes[0].Shared, w.Volumes[0].Kept = true, true }}, fate{kind: operations.Cleanup, shared: true, kept: true}},
		"an unadopted one has it":     {[]func(*fixture){withoutClaim, free, unadopted}, fate{problem: true}},
		"shared, with an unadopted":   {[]func(*fixture){withoutClaim, free, unadopted, func(w *fixture) { w.Volumes[0].Shared = true }}, fate{problem: true}},
		"unadopted, was blocked":      {[]func(*fixture){withoutClaim, free, unadopted, withAttempts(ended(cleanup(), blocked))}, fate{problem: true}},
		"unadopted, had failed":       {[]func(*fixture){withoutClaim, free, unadopted, withAttempts(ended(cleanup(), failed))}, fate{problem: true}},
		"unadopted, being cleaned":    {[]func(*fixture){withoutClaim, free, unadopted, withAttempts(running(cleanup()))}, fate{running: true}},
		"unadopted, cleaned":          {[]func(*fixture){withoutClaim, free, unadopted, withAttempts(ended(cleanup(), done))}, fate{deletes: true}},
		"unadopted, bound":            {[]func(*fixture){boundClaim, bound, unadopted}, fate{}},
		"unadopted, Retain":           {[]func(*fixture){withoutClaim, withVolume(newVolume(t, released, retained, noFinalizer)), unadopted}, fate{}},
		"being cleaned":               {[]func(*fixture){withoutClaim, free, withAttempts(running(cleanup()))}, fate{running: true}},
		"cleaned":                     {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), done))}, fate{deletes: true}},
		"cleaned, directory stays":    {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), stays))}, fate{deletes: true, skipped: true}},
		"cleaned, others have it":     {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), shared))}, fate{deletes: true, informed: true}},
		"cleaned in an earlier life":  {[]func(*fixture){withoutClaim, free, withAttempts(before(ended(cleanup(), done)))}, fate{kind: operations.Cleanup}},
		"cleaned, another path":       {[]func(*fixture){withoutClaim, free, withAttempts(ended(elsewhere(cleanup()), done))}, fate{kind: operations.Cleanup}},
		"blocked":                     {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), blocked))}, fate{kind: operations.Cleanup, blockers: 1}},
		"cleanup failed":              {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), failed))}, fate{kind: operations.Cleanup, due: now, failed: true}},
		"cleanup lost":                {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), lost))}, fate{kind: operations.Cleanup, failed: true}},
		"cleanup stopped":             {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), stopped))}, fate{kind: operations.Cleanup}},
		"original, stopped":           {[]func(*fixture){boundClaim, withVolume(newVolume(t, original)), withAttempts(ended(adoption(), stopped))}, fate{kind: operations.Setup}},
		"file system gone":            {[]func(*fixture){boundClaim, goneFileSystem, bound}, fate{remove: true, gone: true}},
		"file system gone, released":  {[]func(*fixture){withoutClaim, goneFileSystem, free}, fate{gone: true, deletes: true}},
		"file system unknown":         {[]func(*fixture){withoutClaim, free, func(w *fixture) { w.Targets.FileSystems = nil }}, fate{problem: true}},
		"forged path":                 {[]func(*fixture){withoutClaim, withVolume(newVolume(t, released, func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/other" }))}, fate{problem: true}},
		"original, bound":             {[]func(*fixture){boundClaim, withVolume(newVolume(t, original))}, fate{kind: operations.Setup}},
		"original, being adopted":     {[]func(*fixture){boundClaim, withVolume(newVolume(t, original)), withAttempts(running(adoption()))}, fate{running: true}},
		"original, entered":           {[]func(*fixture){boundClaim, withVolume(newVolume(t, original)), withAttempts(ended(adoption(), done))}, fate{adopt: true}},
		"original, entered, unbound":  {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released)), withAttempts(ended(adoption(), done))}, fate{adopt: true}},
		"original, lost, unbound":     {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released)), withAttempts(ended(adoption(), lost))}, fate{kind: operations.Setup, failed: true}},
		"original, no answer":         {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released)), withAttempts(ended(adoption(), noAnswer))}, fate{kind: operations.Setup, due: now, failed: true}},
		"original, refused, unbound":  {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released)), withAttempts(ended(adoption(), failed))}, fate{problem: true}},
		"original, used, unbound":     {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released)), withAttempts(used(ended(adoption(), done)))}, fate{problem: true}},
		"original, entered, deleted":  {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released, deleting)), withAttempts(ended(adoption(), done))}, fate{problem: true}},
		"original, entered otherwise": {[]func(*fixture){boundClaim, withVolume(newVolume(t, original)), withAttempts(ended(ofAnotherClaim(adoption()), done))}, fate{kind: operations.Setup}},
		"original, refused":           {[]func(*fixture){boundClaim, withVolume(newVolume(t, original)), withAttempts(ended(adoption(), failed))}, fate{kind: operations.Setup, due: now, failed: true}},
		"original, released":          {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released))}, fate{problem: true}},
		"original, bound, forged":     {[]func(*fixture){boundClaim, withVolume(newVolume(t, original, elsewhereServed))}, fate{problem: true}},
		"original, Retain, forged":    {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, elsewhereServed, released, retained))}, fate{}},
		"original, deleted unbound":   {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, deleting, available))}, fate{problem: true}},
		"original, available":         {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, available))}, fate{}},
		"original, deleted, bound":    {[]func(*fixture){boundClaim, withVolume(newVolume(t, original, deleting))}, fate{}},
		"original, forged, available": {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, elsewhereServed, available))}, fate{}},
		"blocked, bound again":        {[]func(*fixture){boundClaim, bound, withAttempts(ended(cleanup(), blocked))}, fate{kind: operations.Setup}},
		"failed, Retain now":          {[]func(*fixture){withoutClaim, saved, withAttempts(ended(cleanup(), failed))}, fate{kind: operations.Setup}},
		"lost, Retain now":            {[]func(*fixture){withoutClaim, saved, withAttempts(ended(cleanup(), lost))}, fate{kind: operations.Setup}},
		"being cleaned, Retain now":   {[]func(*fixture){withoutClaim, saved, withAttempts(running(cleanup()))}, fate{running: true}},
		"cleaned, Retain now":         {[]func(*fixture){withoutClaim, saved, withAttempts(ended(cleanup(), done))}, fate{}},
		"failed in an earlier life":   {[]func(*fixture){withoutClaim, saved, withAttempts(before(ended(cleanup(), failed)))}, fate{}},
		"being taken back":            {[]func(*fixture){withoutClaim, saved, withAttempts(running(takingBack()), ended(cleanup(), failed))}, fate{running: true}},
		"taken back":                  {[]func(*fixture){withoutClaim, saved, withAttempts(ended(takingBack(), done), ended(cleanup(), failed))}, fate{}},
		"not taken back":              {[]func(*fixture){withoutClaim, saved, withAttempts(ended(takingBack(), failed), ended(cleanup(), failed))}, fate{kind: operations.Setup, due: now, failed: true}},
		"nothing to take back":        {[]func(*fixture){withoutClaim, saved, withAttempts(ended(takingBack(), notFound), ended(cleanup(), lost))}, fate{}},
		"taken back, Delete again":    {[]func(*fixture){withoutClaim, free, withAttempts(ended(takingBack(), done), ended(cleanup(), done))}, fate{deletes: true}},
		"cleaned and used":            {[]func(*fixture){withoutClaim, free, withAttempts(used(ended(cleanup(), done)))}, fate{kind: operations.Cleanup}},
		"gone, no finalizer":          {[]func(*fixture){boundClaim, goneFileSystem, withVolume(newVolume(t, noFinalizer))}, fate{}},
		"gone, released without one":  {[]func(*fixture){withoutClaim, goneFileSystem, withVolume(newVolume(t, released, noFinalizer))}, fate{deletes: true}},
		"original, released, Retain":  {[]func(*fixture){withoutClaim, withVolume(newVolume(t, original, released, retained))}, fate{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fateOf(t, Decide(newState(c.change...))); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func boundClaim(w *fixture) {
	w.Claim.Spec.VolumeName = volumes.VolumeName(uid)
	w.Claim.Status.Phase = corev1.ClaimBound
	w.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func goneFileSystem(w *fixture) { w.Targets.Gone = map[string]bool{fs1: true} }

func original(v *corev1.PersistentVolume) { delete(v.Annotations, wellknown.AnnotationPath) }

func elsewhereServed(v *corev1.PersistentVolume) { v.Spec.NFS.Server = "localhost" }

// TestOriginalThatCannotBeAdopted expects a reason while the volume is in use, and also when it is released.
func TestOriginalThatCannotBeAdopted(t *testing.T) {
	inUse := newState(boundClaim, withVolume(newVolume(t, original, elsewhereServed)))
	left := newState(withoutClaim, withVolume(newVolume(t, original, elsewhereServed, released)))
	for name, s := range map[string]State{"bound": inUse, "released": left} {
		var problem string
		for _, change := range Decide(s).Changes {
			if warn, ok := change.(Warn); ok {
				problem += warn.Message
			}
		}
		if !strings.Contains(problem, `its server is "localhost"`) || strings.Contains(problem, "seen bound") {
			t.Errorf("%s: %q", name, problem)
		}
	}
}

func adoption() operations.Operation {
	o := setup()
	o.Adopt, o.Made, o.Record = true, true, nil
	return o
}

// noAnswer may hide that everything was done.
var noAnswer = operations.Result{State: operations.Failed, Reason: operations.IOError, Message: "no answer"}

func ofAnotherClaim(o operations.Operation) operations.Operation {
	o.ClaimUID = "another"
	return o
}

func before(a Attempt) Attempt {
	a.Began = now.Add(-2 * time.Hour)
	return a
}

func elsewhere(o operations.Operation) operations.Operation {
	o.Path = "/shop/elsewhere"
	return o
}

func TestForeignVolumesAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"of another provisioner": func(v *corev1.PersistentVolume) { v.Annotations[wellknown.AnnotationProvisionedBy] = "other" },
		"without annotations":    func(v *corev1.PersistentVolume) { v.Annotations = nil },
		"of the root class":      func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = wellknown.RootStorageClass },
	} {
		if plan := Decide(newState(withoutClaim, withVolume(newVolume(t, released, change)))); len(plan.Changes)+len(plan.Pending) > 0 {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

func TestAdoptionKeepsWhoShares(t *testing.T) {
	o := Decide(newState(boundClaim, withVolume(newVolume(t, original)))).Pending[0].Operation
	if !o.Adopt || !o.Made || o.Class != "efs" || !o.ShareAcrossNamespaces || !o.ShareAcrossClusters {
		t.Errorf("an original volume is adopted by %+v", o)
	}
}

func TestUsed(t *testing.T) {
	object, originalOne, freeOne := newVolume(t), newVolume(t, original), newVolume(t, released)
	for name, c := range map[string]struct {
		attempt    Attempt
		object     *corev1.PersistentVolume
		superseded bool
		want       bool
	}{
		"running":                       {running(setup()), object, true, false},
		"marked":                        {used(ended(setup(), done)), nil, false, true},
		"setup done, volume there":      {ended(setup(), done), object, false, true},
		"setup done, no volume":         {ended(setup(), done), nil, false, false},
		"setup done, superseded":        {ended(setup(), done), nil, true, true},
		"setup lost":                    {ended(setup(), lost), nil, false, false},
		"setup stopped":                 {ended(setup(), stopped), nil, false, false},
		"setup without an answer":       {ended(setup(), noAnswer), nil, false, false},
		"setup failed":                  {ended(setup(), failed), nil, false, true},
		"adoption done, not adopted":    {ended(adoption(), done), originalOne, false, false},
		"adoption done, adopted":        {ended(adoption(), done), object, false, true},
		"adoption lost":                 {ended(adoption(), lost), originalOne, false, false},
		"adoption lost, tried again":    {ended(adoption(), lost), originalOne, true, true},
		"adoption lost, volume gone":    {ended(adoption(), lost), nil, false, true},
		"adoption without an answer":    {ended(adoption(), noAnswer), originalOne, false, false},
		"adoption refused":              {ended(adoption(), failed), originalOne, false, true},
		"adoption of another claim's":   {ended(ofAnotherClaim(adoption()), done), originalOne, false, true},
		"cleanup done, volume there":    {ended(cleanup(), done), freeOne, false, false},
		"cleanup done, volume gone":     {ended(cleanup(), done), nil, false, true},
		"cleanup done, volume retained": {ended(cleanup(), done), newVolume(t, released, retained), false, true},
		"cleanup failed":                {ended(cleanup(), failed), freeOne, false, false},
		"cleanup failed, tried again":   {ended(cleanup(), failed), freeOne, true, true},
		"cleanup failed, volume gone":   {ended(cleanup(), failed), nil, false, true},
		"cleanup called off":            {ended(cleanup(), blocked), object, false, false},
		"taken back":                    {ended(takingBack(), done), object, false, true},
		"not taken back":                {ended(takingBack(), failed), object, false, false},
		"not taken back, volume gone":   {ended(takingBack(), failed), nil, false, true},
		"nothing to take back":          {ended(takingBack(), notFound), object, false, true},
	} {
		traces := Traces{Superseded: c.superseded}
		if c.object != nil {
			traces.Volume = volumes.Read(c.object, provisioner)
		}
		if got := c.attempt.IsUsed(traces); got != c.want {
			t.Errorf("%s: used is %v", name, got)
		}
	}
}

func TestUsedWhenTheClaimIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		attempt Attempt
		want    bool
	}{
		"running":          {running(ofPolicy("Retain")), false},
		"Retain, done":     {ended(ofPolicy("Retain"), done), true},
		"Retain, lost":     {ended(ofPolicy("Retain"), lost), true},
		"Retain, restored": {ended(restored(ofPolicy("Retain")), done), false},
		"Delete, done":     {ended(setup(), done), false},
		"Delete, lost":     {ended(setup(), lost), false},
	} {
		if got := c.attempt.IsUsed(Traces{Abandoned: true}); got != c.want {
			t.Errorf("%s: used is %v", name, got)
		}
	}
}

// TestVolumeIsNotMadeAgain has the Jobs that made a volume marked as used, before it can be deleted without us.
func TestVolumeIsNotMadeAgain(t *testing.T) {
	maker := ended(setup(), done)
	edited := newVolume(t, retained)
	for name, c := range map[string]struct {
		change []func(*fixture)
		used   int
	}{
		"edited to Retain":         {[]func(*fixture){withVolume(edited), withAttempts(maker)}, 1},
		"edited, Job used up":      {[]func(*fixture){withVolume(edited), withAttempts(used(maker))}, 0},
		"cleaned up":               {[]func(*fixture){withoutClaim, withVolume(newVolume(t, released)), withAttempts(ended(cleanup(), done), maker)}, 1},
		"its file system is gone":  {[]func(*fixture){goneFileSystem, withVolume(newVolume(t)), withAttempts(maker)}, 1},
		"bound, to be kept as is":  {[]func(*fixture){withVolume(newVolume(t)), withAttempts(maker)}, 0},
		"cleanup under way":        {[]func(*fixture){withoutClaim, withVolume(newVolume(t, released)), withAttempts(running(cleanup()), maker)}, 0},
		"retained from the start":  {[]func(*fixture){withVolume(newVolume(t, retained, noFinalizer)), withAttempts(ended(ofPolicy("Retain"), done))}, 0},
		"edited, made in two goes": {[]func(*fixture){withVolume(edited), withAttempts(maker, ended(setup(), lost))}, 2},
	} {
		var used []string
		for _, change := range Decide(newState(c.change...)).Changes {
			switch c := change.(type) {
			case RemoveFinalizer:
				used = c.MakerJobs
			case DeleteVolume:
				used = c.MakerJobs
			}
		}
		if len(used) != c.used {
			t.Errorf("%s: Jobs %q are marked as used, want %d", name, used, c.used)
		}
	}
}
