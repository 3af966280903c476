package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// want has the parts of a claim's plan that tests compare.
type want struct {
	kind       operations.Kind // of the pending operation
	attempt    int
	due        time.Time
	creates    bool
	running    bool
	refusal    string // part of it
	wait       string
	reschedule string
	conflict   string
	failed     bool
	givenUp    bool
	rediscover bool
	used       int // Jobs marked as used
}

func wantOf(t *testing.T, p Plan) want {
	t.Helper()
	w := want{running: !p.RunningUntil.IsZero()}
	for _, pending := range p.Pending {
		w.kind, w.attempt, w.due = pending.Operation.Kind, pending.Operation.Attempt(), pending.Due
	}
	for _, change := range p.Changes {
		switch c := change.(type) {
		case CreateVolume:
			w.creates = true
		case Rediscover:
			w.rediscover = true
		case MarkUsed:
			w.used = len(c.Jobs)
		case Annotate:
			w.givenUp = c.Annotations[wellknown.AnnotationGivenUp] != nil
		case Warn:
			w.read(c)
			if want := causeOf(c); c.Cause != want {
				t.Errorf("got cause %q of %q, want %q", c.Cause, c.Message, want)
			}
		default:
			t.Errorf("a claim's plan has %+v", c)
		}
	}
	if reason := annotation(p, wellknown.AnnotationRejectReason, ""); reason != w.refusal {
		t.Errorf("refused because of %q, annotated with %q", w.refusal, reason)
	}
	return w
}

// causeOf is the cause that an event about a claim must have.
func causeOf(c Warn) string {
	switch {
	case c.Topic == "refusal" && strings.Contains(c.Message, "gave up"):
		return status.GivenUp
	case c.Topic == "refusal" && strings.Contains(c.Message, "base_path"):
		return status.ClassRefused
	case c.Topic == "wait" && strings.Contains(c.Message, "which is to be copied"):
		return status.WaitsForSource
	case strings.Contains(c.Message, "could not copy claim"):
		return status.CloneFailed
	}
	if cause, ok := map[string]string{
		"refusal": status.ClaimRejected, "wait": status.WaitsForFileSystem, "node": status.WaitsForOtherNode, "conflict": status.VolumeRefused,
	}[c.Topic]; ok {
		return cause
	}
	return status.SetupFailed
}

func (w *want) read(c Warn) {
	switch c.Topic {
	case "refusal":
		w.refusal = c.Message
	case "wait":
		w.wait = c.Message
	case "node":
		w.reschedule = c.Message
	case "conflict":
		w.conflict = c.Message
	default:
		w.failed = true
	}
}

// annotation returns the claim's annotation after a plan is applied to one that had another value, "" for none.
func annotation(p Plan, key, before string) string {
	for _, change := range p.Changes {
		if a, ok := change.(Annotate); ok {
			if value, changed := a.Annotations[key]; changed {
				before, _ = value.(string)
			}
		}
	}
	return before
}

func (w want) check(t *testing.T, p Plan) {
	t.Helper()
	got := wantOf(t, p)
	for _, text := range []struct{ got, part *string }{{&got.refusal, &w.refusal}, {&got.wait, &w.wait}, {&got.reschedule, &w.reschedule}, {&got.conflict, &w.conflict}} {
		if *text.part != "" && strings.Contains(*text.got, *text.part) {
			*text.got = *text.part
		}
	}
	if got != w {
		t.Errorf("got  %+v\nwant %+v", got, w)
	}
}

func TestClaimWithoutVolume(t *testing.T) {
	first := want{kind: operations.Setup, attempt: 1}
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   want
	}{
		"new":                         {nil, first},
		"gone":                        {[]func(*fixture){withoutClaim}, want{}},
		"of another provisioner":      {[]func(*fixture){func(w *fixture) { w.Class.Provisioner = "other" }}, want{}},
		"not asked for yet":           {[]func(*fixture){func(w *fixture) { w.Claim.Annotations = nil }}, want{}},
		"class missing":               {[]func(*fixture){func(w *fixture) { w.Class = nil }}, want{}},
		"file systems not known":      {[]func(*fixture){func(w *fixture) { w.Targets.Known = false }}, want{}},
		"table unreadable":            {[]func(*fixture){func(w *fixture) { w.Targets.Known, w.Targets.Problem = false, "the table to be mended" }}, want{wait: "mended"}},
		"no file system":              {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems = nil }}, want{wait: "no file system", rediscover: true}},
		"no file system, API silent":  {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems, w.Targets.Listed, w.Targets.Unanswered = nil, false, true }}, want{wait: "the events of ConfigMap efs-stunnel say why", rediscover: true}},
		"file system unusable":        {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems[fs1] = volumes.Candidate{ID: fs1, Unusable: "it is creating"} }}, want{wait: "it is creating"}},
		"bad parameter":               {[]func(*fixture){func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} }}, want{refusal: "base_path"}},
		"block volume":                {[]func(*fixture){func(w *fixture) { block := corev1.PersistentVolumeBlock; w.Claim.Spec.VolumeMode = &block }}, want{refusal: "Block"}},
		"tags, API silent":            {[]func(*fixture){asksForTags, func(w *fixture) { w.Targets.Listed = false }}, want{wait: "tags", rediscover: true}},
		"node far from file system":   {[]func(*fixture){onNode("b"), zonesOf("a")}, want{reschedule: "zone"}},
		"node near file system":       {[]func(*fixture){onNode("a"), zonesOf("a")}, first},
		"running":                     {[]func(*fixture){withAttempts(running(setup()))}, want{running: true}},
		"running, claim gone":         {[]func(*fixture){withoutClaim, withAttempts(running(setup()))}, want{running: true}},
		"done":                        {[]func(*fixture){withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, claim gone":            {[]func(*fixture){withoutClaim, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, Retain, claim gone":    {[]func(*fixture){withoutClaim, withAttempts(ended(ofPolicy("Retain"), done))}, want{}},
		"lost, Retain, claim gone":    {[]func(*fixture){withoutClaim, withAttempts(ended(ofPolicy("Retain"), lost))}, want{}},
		"running, Retain, claim gone": {[]func(*fixture){withoutClaim, withAttempts(running(ofPolicy("Retain")))}, want{running: true}},
		"done, Retain":                {[]func(*fixture){withAttempts(ended(ofPolicy("Retain"), done))}, want{creates: true}},
		"restored, Retain, no claim":  {[]func(*fixture){withoutClaim, withAttempts(ended(restored(ofPolicy("Retain")), done))}, want{creates: true}},
		"done, class gone":            {[]func(*fixture){func(w *fixture) { w.Class = nil }, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, no port":               {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems = nil }, withAttempts(ended(setup(), done))}, want{wait: "no local port"}},
		"done, nothing known yet":     {[]func(*fixture){nothingKnown, withAttempts(ended(setup(), done))}, want{}},
		"done, first list not over":   {[]func(*fixture){func(w *fixture) { w.Targets.Known, w.Targets.Listed = false, false }, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, file system gone":      {[]func(*fixture){goneButAnother, withAttempts(ended(setup(), done))}, want{kind: operations.Setup, attempt: 1, used: 1}},
		"lost, file system gone":      {[]func(*fixture){goneButAnother, withAttempts(ended(try(setup(), 3), lost), ended(setup(), lost))}, want{kind: operations.Setup, attempt: 1, used: 2}},
		"failed, file system gone":    {[]func(*fixture){goneButAnother, withAttempts(ended(try(setup(), 3), failed))}, first},
		"running, file system gone":   {[]func(*fixture){goneButAnother, withAttempts(running(setup()))}, want{running: true}},
		"lost, claim and files gone":  {[]func(*fixture){withoutClaim, goneButAnother, withAttempts(ended(setup(), lost))}, want{used: 1}},
		"marked, file system gone":    {[]func(*fixture){goneButAnother, withAttempts(used(ended(setup(), lost)))}, first},
		"lost, file system not known": {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems = nil }, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"lost, nothing known yet":     {[]func(*fixture){nothingKnown, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"done and used":               {[]func(*fixture){withAttempts(used(ended(setup(), done)))}, first},
		"done, then cleaned":          {[]func(*fixture){withAttempts(ended(cleanup(), done), ended(setup(), done))}, first},
		"being cleaned":               {[]func(*fixture){withAttempts(running(cleanup()), ended(setup(), done))}, want{running: true}},
		"stopped":                     {[]func(*fixture){withAttempts(ended(setup(), stopped))}, want{kind: operations.Setup, attempt: 1}},
		"batch refused once":          {[]func(*fixture){withAttempts(ended(setup(), refused))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"batch refused twice":         {[]func(*fixture){withAttempts(ended(try(setup(), 2), refused))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"batch refused 3 times":       {[]func(*fixture){withAttempts(ended(try(setup(), 3), refused))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff), failed: true}},
		"lost once":                   {[]func(*fixture){withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"lost twice":                  {[]func(*fixture){withAttempts(ended(try(setup(), 2), lost))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"lost, claim gone":            {[]func(*fixture){withoutClaim, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2}},
		"failed once":                 {[]func(*fixture){withAttempts(ended(setup(), failed))}, want{kind: operations.Setup, attempt: 2, due: now, failed: true}},
		"failed 3 times":              {[]func(*fixture){withAttempts(ended(try(setup(), 3), failed))}, want{kind: operations.Setup, attempt: 4, due: now.Add(3 * backoff), failed: true}},
		"failed 99 times":             {[]func(*fixture){withAttempts(ended(try(setup(), 99), failed))}, want{kind: operations.Setup, attempt: 100, due: now.Add(15 * backoff), failed: true}},
		"failed and used":             {[]func(*fixture){withAttempts(used(ended(setup(), failed)))}, want{kind: operations.Setup, attempt: 2, due: now, failed: true}},
		"no answer, claim gone":       {[]func(*fixture){withoutClaim, withAttempts(ended(setup(), noAnswer))}, want{kind: operations.Setup, attempt: 2, due: now}},
		"failed, claim gone":          {[]func(*fixture){withoutClaim, withAttempts(ended(setup(), failed))}, want{}},
		"failed, class bad by now":    {[]func(*fixture){func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} }, withAttempts(ended(setup(), failed))}, want{refusal: "base_path"}},
		"lost, class bad by now":      {[]func(*fixture){func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} }, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"below the threshold":         {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 2), failed))}, want{kind: operations.Setup, attempt: 3, due: now.Add(backoff), failed: true}},
		"at the threshold":            {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 3), failed))}, want{refusal: "gave up after 3", givenUp: true}},
		"lost below the threshold":    {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 2), lost))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"lost at the threshold":       {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 3), lost))}, want{refusal: "gave up after 3", givenUp: true}},
		"batch refused too often":     {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 3), refused))}, want{refusal: "gave up after 3", givenUp: true}},
		"stopped at the threshold":    {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 3), stopped))}, want{kind: operations.Setup, attempt: 3}},
		"lost too often, claim gone":  {[]func(*fixture){threshold, withoutClaim, withAttempts(ended(try(setup(), 3), lost))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff)}},
		"lost too often, class gone":  {[]func(*fixture){threshold, func(w *fixture) { w.Class = nil }, withAttempts(ended(try(setup(), 3), lost))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff), failed: true}},
		"lost, input has changed":     {[]func(*fixture){threshold, givenUp("other"), withAttempts(ended(try(setup(), 3), lost))}, first},
		"given up, input has changed": {[]func(*fixture){threshold, givenUp("other"), withAttempts(ended(try(setup(), 3), failed))}, first},
		"restore":                     {[]func(*fixture){func(w *fixture) { w.Claim.Annotations[wellknown.AnnotationRestore] = string(otherUID) }}, want{kind: operations.Restore, attempt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, Decide(newState(c.change...)))
		})
	}
}

// goneButAnother has the claim's file system deleted, and one that could serve instead.
func goneButAnother(w *fixture) {
	w.Targets.Gone = map[string]bool{fs1: true}
	w.Targets.FileSystems = map[string]volumes.Candidate{fs2: {ID: fs2, Port: 20491}}
}

// nothingKnown removes all targets, as a new leader finds them.
func nothingKnown(w *fixture) { w.Targets = targets.Snapshot{} }

func asksForTags(w *fixture) { w.Class.Parameters = map[string]string{"file_system_tags": "team=shop"} }

func onNode(zone string) func(*fixture) {
	return func(w *fixture) {
		w.NodeZone = zone
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		w.Class.VolumeBindingMode = &wait
		w.Claim.Annotations[wellknown.AnnotationSelectedNode] = "node-1"
	}
}

func zonesOf(zones ...string) func(*fixture) {
	return func(w *fixture) { w.Targets.FileSystems[fs1] = volumes.Candidate{ID: fs1, Port: 20490, Zones: zones} }
}

func threshold(w *fixture) { w.Threshold = 3 }

func givenUp(as string) func(*fixture) {
	return func(w *fixture) { w.Claim.Annotations[wellknown.AnnotationGivenUp] = as }
}

// givenUpAs returns the annotation of a claim that was given up with these attempts.
func givenUpAs(t *testing.T, attempts func(*fixture)) string {
	t.Helper()
	as := annotation(Decide(newState(threshold, attempts)), wellknown.AnnotationGivenUp, "")
	if as == "" {
		t.Fatal("the claim is not given up")
	}
	return as
}

func keepsGivenUp(p Plan) bool {
	return annotation(p, wellknown.AnnotationGivenUp, "as before") == "as before"
}

func TestGivenUpClaimIsTriedAgainWhenTheInputChanges(t *testing.T) {
	attempts := withAttempts(ended(try(setup(), 3), failed))
	before := givenUpAs(t, attempts)
	if same := Decide(newState(threshold, attempts, givenUp(before))); !keepsGivenUp(same) || len(same.Pending) > 0 {
		t.Errorf("given up as %q, then planned %+v", before, same)
	}
	for name, change := range map[string]func(*fixture){
		"class":       func(w *fixture) { w.Class.ResourceVersion = "2" },
		"claim":       func(w *fixture) { w.Claim.Labels = map[string]string{"a": "b"} },
		"path":        func(w *fixture) { w.Class.Parameters = map[string]string{"base_path": "/other"} },
		"file system": func(w *fixture) { w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491} },
		"aliases":     func(w *fixture) { w.Aliases = map[string][]string{fs1: {fs2}} },
	} {
		again := Decide(newState(threshold, attempts, givenUp(before), change))
		if len(again.Pending) != 1 || !keepsGivenUp(again) {
			t.Errorf("%s changed: %+v", name, again)
		}
	}
}

// TestGivenUpClaimKeepsItsLostSetup is about a setup that may have made a directory: its Job is not
// used while the claim is given up, and the setup goes on as it was begun.
func TestGivenUpClaimKeepsItsLostSetup(t *testing.T) {
	last := ended(try(setup(), 3), lost)
	attempts := withAttempts(last)
	before := givenUpAs(t, attempts)
	if same := Decide(newState(threshold, attempts, givenUp(before))); !keepsGivenUp(same) || len(same.Pending) > 0 {
		t.Errorf("given up as %q, then planned %+v", before, same)
	}
	if last.IsUsed(Traces{}) {
		t.Error("the Job that may have made a directory is forgotten")
	}
	changed := func(w *fixture) {
		w.Class.ResourceVersion, w.Class.Parameters = "2", map[string]string{"base_path": "/elsewhere"}
		w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491}
	}
	again := Decide(newState(threshold, attempts, givenUp(before), changed))
	if len(again.Pending) != 1 || again.Pending[0].Operation.Path != path || again.Pending[0].FileSystemID != fs1 || !keepsGivenUp(again) {
		t.Errorf("with other input: %+v", again)
	}
}

// TestGivenUpStaysWhileNothingCanBeTried has the mark outlive a class that is gone for a moment.
func TestGivenUpStaysWhileNothingCanBeTried(t *testing.T) {
	attempts := withAttempts(ended(try(setup(), 3), failed))
	for name, change := range map[string]func(*fixture){
		"no class":       func(w *fixture) { w.Class = nil },
		"bad class":      func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} },
		"no file system": func(w *fixture) { w.Targets.FileSystems = nil },
	} {
		if plan := Decide(newState(threshold, attempts, givenUp("before"), change)); !keepsGivenUp(plan) || len(plan.Pending) > 0 {
			t.Errorf("%s: %+v", name, plan)
		}
	}
	if plan := Decide(newState(threshold, withAttempts(running(setup())), givenUp("before"))); keepsGivenUp(plan) {
		t.Error("the mark stays though the claim is tried again")
	}
}

func TestClaimWithVolumeOfItsName(t *testing.T) {
	own := newVolume(t)
	others := newVolume(t, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = otherUID })
	want{}.check(t, Decide(newState(withVolume(own), withAttempts(ended(setup(), done)))))
	want{conflict: "another claim's"}.check(t, Decide(newState(withVolume(others))))
}

func TestHolderOfThePathIsChosen(t *testing.T) {
	for _, id := range []string{fs1, fs2} {
		s := newState(func(w *fixture) {
			w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491}
			w.holders[path] = []string{id}
		})
		if got := Decide(s).Pending; len(got) != 1 || got[0].FileSystemID != id {
			t.Errorf("%s holds the path, chosen is %v", id, got)
		}
	}
}

func TestRepeatedOperationIsTheRecordedOne(t *testing.T) {
	s := newState(func(w *fixture) {
		w.Class.Parameters = map[string]string{"base_path": "/elsewhere"}
		w.Targets.FileSystems = map[string]volumes.Candidate{
			fs1: {ID: fs1, Port: 20490, Unusable: "the EFS API does not list it"}, fs2: {ID: fs2, Port: 20491},
		}
	}, withAttempts(ended(setup(), lost)))
	got := Decide(s).Pending
	if len(got) != 1 || got[0].Operation.Path != path || got[0].FileSystemID != fs1 {
		t.Errorf("a lost setup is repeated as %+v", got)
	}
}
