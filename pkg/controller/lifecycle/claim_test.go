package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// want is what a test looks at of a ClaimPlan.
type want struct {
	kind     operations.Kind // of Pending
	attempt  int
	due      time.Time
	creates  bool
	running  bool
	refusal  string // part of it
	wait     string
	nodeBack string
	conflict string
	failed   bool
	givenUp  bool
	kicks    bool
	spent    int
}

func (w want) check(t *testing.T, p ClaimPlan) {
	t.Helper()
	got := want{
		creates: p.Create != nil, running: !p.Running.IsZero(), failed: p.Failed != nil,
		givenUp: p.GivenUp != "", kicks: p.Rediscover, spent: len(p.Spent),
		refusal: p.Refusal, wait: p.Wait, nodeBack: p.Reschedule, conflict: p.Conflict,
	}
	if p.Pending != nil {
		got.kind, got.attempt, got.due = p.Pending.Operation.Kind, volumes.AttemptOf(p.Pending.Operation), p.Pending.Due
	}
	for _, text := range []struct{ got, part *string }{{&got.refusal, &w.refusal}, {&got.wait, &w.wait}, {&got.nodeBack, &w.nodeBack}, {&got.conflict, &w.conflict}} {
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
		change []func(*world)
		want   want
	}{
		"new":                         {nil, first},
		"gone":                        {[]func(*world){withoutClaim}, want{}},
		"of another provisioner":      {[]func(*world){func(w *world) { w.Class.Provisioner = "other" }}, want{}},
		"not asked for yet":           {[]func(*world){func(w *world) { w.Claim.Annotations = nil }}, want{}},
		"class missing":               {[]func(*world){func(w *world) { w.Class = nil }}, want{}},
		"file systems not known":      {[]func(*world){func(w *world) { w.Targets.Known = false }}, want{}},
		"table unreadable":            {[]func(*world){func(w *world) { w.Targets.Known, w.Targets.Trouble = false, "the table to be mended" }}, want{wait: "mended"}},
		"no file system":              {[]func(*world){func(w *world) { w.Targets.FileSystems = nil }}, want{wait: "no file system", kicks: true}},
		"no file system, API silent":  {[]func(*world){func(w *world) { w.Targets.FileSystems, w.Targets.Listed, w.Targets.Unanswered = nil, false, true }}, want{wait: "the events of ConfigMap efs-stunnel say why", kicks: true}},
		"file system unusable":        {[]func(*world){func(w *world) { w.Targets.FileSystems[fs1] = volumes.Candidate{ID: fs1, Unusable: "it is creating"} }}, want{wait: "it is creating"}},
		"bad parameter":               {[]func(*world){func(w *world) { w.Class.Parameters = map[string]string{"basePath": "/"} }}, want{refusal: "base_path"}},
		"block volume":                {[]func(*world){func(w *world) { block := corev1.PersistentVolumeBlock; w.Claim.Spec.VolumeMode = &block }}, want{refusal: "Block"}},
		"tags, API silent":            {[]func(*world){asksForTags, func(w *world) { w.Targets.Listed = false }}, want{wait: "tags", kicks: true}},
		"node far from file system":   {[]func(*world){onNode("b"), zonesOf("a")}, want{nodeBack: "zone"}},
		"node near file system":       {[]func(*world){onNode("a"), zonesOf("a")}, first},
		"running":                     {[]func(*world){withAttempts(running(setup()))}, want{running: true}},
		"running, claim gone":         {[]func(*world){withoutClaim, withAttempts(running(setup()))}, want{running: true}},
		"done":                        {[]func(*world){withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, claim gone":            {[]func(*world){withoutClaim, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, Retain, claim gone":    {[]func(*world){withoutClaim, withAttempts(ended(ofPolicy("Retain"), done))}, want{}},
		"lost, Retain, claim gone":    {[]func(*world){withoutClaim, withAttempts(ended(ofPolicy("Retain"), lost))}, want{}},
		"running, Retain, claim gone": {[]func(*world){withoutClaim, withAttempts(running(ofPolicy("Retain")))}, want{running: true}},
		"done, Retain":                {[]func(*world){withAttempts(ended(ofPolicy("Retain"), done))}, want{creates: true}},
		"restored, Retain, no claim":  {[]func(*world){withoutClaim, withAttempts(ended(restored(ofPolicy("Retain")), done))}, want{creates: true}},
		"done, class gone":            {[]func(*world){func(w *world) { w.Class = nil }, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, no port":               {[]func(*world){func(w *world) { w.Targets.FileSystems = nil }, withAttempts(ended(setup(), done))}, want{wait: "no local port"}},
		"done, nothing known yet":     {[]func(*world){nothingKnown, withAttempts(ended(setup(), done))}, want{}},
		"done, first look not over":   {[]func(*world){func(w *world) { w.Targets.Known, w.Targets.Listed = false, false }, withAttempts(ended(setup(), done))}, want{creates: true}},
		"done, file system gone":      {[]func(*world){goneButAnother, withAttempts(ended(setup(), done))}, want{kind: operations.Setup, attempt: 1, spent: 1}},
		"lost, file system gone":      {[]func(*world){goneButAnother, withAttempts(ended(try(t, setup(), 3), lost), ended(setup(), lost))}, want{kind: operations.Setup, attempt: 1, spent: 2}},
		"failed, file system gone":    {[]func(*world){goneButAnother, withAttempts(ended(try(t, setup(), 3), failed))}, first},
		"running, file system gone":   {[]func(*world){goneButAnother, withAttempts(running(setup()))}, want{running: true}},
		"lost, claim and files gone":  {[]func(*world){withoutClaim, goneButAnother, withAttempts(ended(setup(), lost))}, want{spent: 1}},
		"told so, file system gone":   {[]func(*world){goneButAnother, withAttempts(used(ended(setup(), lost)))}, first},
		"lost, file system not known": {[]func(*world){func(w *world) { w.Targets.FileSystems = nil }, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"lost, nothing known yet":     {[]func(*world){nothingKnown, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"done and used":               {[]func(*world){withAttempts(used(ended(setup(), done)))}, first},
		"done, then cleaned":          {[]func(*world){withAttempts(ended(cleanup(), done), ended(setup(), done))}, first},
		"being cleaned":               {[]func(*world){withAttempts(running(cleanup()), ended(setup(), done))}, want{running: true}},
		"stopped":                     {[]func(*world){withAttempts(ended(setup(), stopped))}, want{kind: operations.Setup, attempt: 1}},
		"batch refused once":          {[]func(*world){withAttempts(ended(setup(), refused))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"batch refused twice":         {[]func(*world){withAttempts(ended(try(t, setup(), 2), refused))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"batch refused 3 times":       {[]func(*world){withAttempts(ended(try(t, setup(), 3), refused))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff), failed: true}},
		"lost once":                   {[]func(*world){withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"lost twice":                  {[]func(*world){withAttempts(ended(try(t, setup(), 2), lost))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"lost, claim gone":            {[]func(*world){withoutClaim, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"failed once":                 {[]func(*world){withAttempts(ended(setup(), failed))}, want{kind: operations.Setup, attempt: 2, due: now, failed: true}},
		"failed 3 times":              {[]func(*world){withAttempts(ended(try(t, setup(), 3), failed))}, want{kind: operations.Setup, attempt: 4, due: now.Add(3 * backoff), failed: true}},
		"failed 99 times":             {[]func(*world){withAttempts(ended(try(t, setup(), 99), failed))}, want{kind: operations.Setup, attempt: 100, due: now.Add(15 * backoff), failed: true}},
		"failed and used":             {[]func(*world){withAttempts(used(ended(setup(), failed)))}, want{kind: operations.Setup, attempt: 2, due: now, failed: true}},
		"failed, claim gone":          {[]func(*world){withoutClaim, withAttempts(ended(setup(), failed))}, want{}},
		"failed, class bad by now":    {[]func(*world){func(w *world) { w.Class.Parameters = map[string]string{"basePath": "/"} }, withAttempts(ended(setup(), failed))}, want{refusal: "base_path"}},
		"lost, class bad by now":      {[]func(*world){func(w *world) { w.Class.Parameters = map[string]string{"basePath": "/"} }, withAttempts(ended(setup(), lost))}, want{kind: operations.Setup, attempt: 2, failed: true}},
		"below the threshold":         {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 2), failed))}, want{kind: operations.Setup, attempt: 3, due: now.Add(backoff), failed: true}},
		"at the threshold":            {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 3), failed))}, want{refusal: "gave up after 3", givenUp: true, failed: true}},
		"lost below the threshold":    {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 2), lost))}, want{kind: operations.Setup, attempt: 3, due: now, failed: true}},
		"lost at the threshold":       {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 3), lost))}, want{refusal: "gave up after 3", givenUp: true, failed: true}},
		"batch refused too often":     {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 3), refused))}, want{refusal: "gave up after 3", givenUp: true, failed: true}},
		"stopped at the threshold":    {[]func(*world){threshold, withAttempts(ended(try(t, setup(), 3), stopped))}, want{kind: operations.Setup, attempt: 3}},
		"lost too often, claim gone":  {[]func(*world){threshold, withoutClaim, withAttempts(ended(try(t, setup(), 3), lost))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff), failed: true}},
		"lost too often, class gone":  {[]func(*world){threshold, func(w *world) { w.Class = nil }, withAttempts(ended(try(t, setup(), 3), lost))}, want{kind: operations.Setup, attempt: 4, due: now.Add(backoff), failed: true}},
		"lost, world has changed":     {[]func(*world){threshold, givenUp("other"), withAttempts(ended(try(t, setup(), 3), lost))}, first},
		"given up, world has changed": {[]func(*world){threshold, givenUp("other"), withAttempts(ended(try(t, setup(), 3), failed))}, first},
		"restore":                     {[]func(*world){func(w *world) { w.Claim.Annotations[wellknown.AnnotationRestore] = string(otherUID) }}, want{kind: operations.Restore, attempt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, Decide(newWorld(c.change...)).Claim)
		})
	}
}

// goneButAnother has the claim's file system deleted, and one that could serve instead.
func goneButAnother(w *world) {
	w.Targets.Gone = map[string]bool{fs1: true}
	w.Targets.FileSystems = map[string]volumes.Candidate{fs2: {ID: fs2, Port: 20491}}
}

// nothingKnown is how a new leader finds the world.
func nothingKnown(w *world) { w.Targets = targets.Snapshot{} }

func asksForTags(w *world) { w.Class.Parameters = map[string]string{"file_system_tags": "team=shop"} }

func onNode(zone string) func(*world) {
	return func(w *world) {
		w.NodeZone = zone
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		w.Class.VolumeBindingMode = &wait
		w.Claim.Annotations[wellknown.AnnotationSelectedNode] = "node-1"
	}
}

func zonesOf(zones ...string) func(*world) {
	return func(w *world) { w.Targets.FileSystems[fs1] = volumes.Candidate{ID: fs1, Port: 20490, Zones: zones} }
}

func threshold(w *world) { w.Threshold = 3 }

func givenUp(as string) func(*world) {
	return func(w *world) { w.Claim.Annotations[wellknown.AnnotationGivenUp] = as }
}

func TestGivenUpStaysInTheSameWorld(t *testing.T) {
	attempts := withAttempts(ended(try(t, setup(), 3), failed))
	before := Decide(newWorld(threshold, attempts)).Claim.GivenUp
	after := Decide(newWorld(threshold, attempts, givenUp(before))).Claim
	if before == "" || after.GivenUp != before || after.Pending != nil {
		t.Errorf("given up as %q, then as %q, wanting %v", before, after.GivenUp, after.Pending)
	}
	for name, change := range map[string]func(*world){
		"class":       func(w *world) { w.Class.ResourceVersion = "2" },
		"claim":       func(w *world) { w.Claim.Labels = map[string]string{"a": "b"} },
		"path":        func(w *world) { w.Class.Parameters = map[string]string{"base_path": "/other"} },
		"file system": func(w *world) { w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491} },
	} {
		again := Decide(newWorld(threshold, attempts, givenUp(before), change)).Claim
		if again.Pending == nil || !again.KeepsGivenUp {
			t.Errorf("%s changed: %+v", name, again)
		}
	}
}

// TestGivenUpLosesTrackOfNothing is about a setup that may have made a directory: its Job is not
// used while the claim is given up, and the setup goes on as it was begun.
func TestGivenUpLosesTrackOfNothing(t *testing.T) {
	last := ended(try(t, setup(), 3), lost)
	attempts := withAttempts(last)
	before := Decide(newWorld(threshold, attempts)).Claim.GivenUp
	if same := Decide(newWorld(threshold, attempts, givenUp(before))).Claim; same.GivenUp != before || same.Pending != nil {
		t.Errorf("given up as %q, then %+v", before, same)
	}
	if last.IsUsed(Traces{}) {
		t.Error("the Job that may have made a directory is forgotten")
	}
	changed := func(w *world) {
		w.Class.ResourceVersion, w.Class.Parameters = "2", map[string]string{"base_path": "/elsewhere"}
		w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491}
	}
	again := Decide(newWorld(threshold, attempts, givenUp(before), changed)).Claim
	if again.Pending == nil || again.Pending.Operation.Path != path || again.Pending.FileSystemID != fs1 || !again.KeepsGivenUp {
		t.Errorf("in a new world: %+v", again)
	}
}

// TestGivenUpStaysWhileNothingCanBeTried has the mark outlive a class that is gone for a moment.
func TestGivenUpStaysWhileNothingCanBeTried(t *testing.T) {
	attempts := withAttempts(ended(try(t, setup(), 3), failed))
	for name, change := range map[string]func(*world){
		"no class":       func(w *world) { w.Class = nil },
		"bad class":      func(w *world) { w.Class.Parameters = map[string]string{"basePath": "/"} },
		"no file system": func(w *world) { w.Targets.FileSystems = nil },
	} {
		if plan := Decide(newWorld(threshold, attempts, givenUp("before"), change)).Claim; !plan.KeepsGivenUp || plan.Pending != nil {
			t.Errorf("%s: %+v", name, plan)
		}
	}
	if plan := Decide(newWorld(threshold, withAttempts(running(setup())), givenUp("before"))).Claim; plan.KeepsGivenUp {
		t.Error("the mark stays though the claim is tried again")
	}
}

func TestClaimWithVolumeOfItsName(t *testing.T) {
	own := newVolume(t)
	strangers := newVolume(t, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = otherUID })
	want{}.check(t, Decide(newWorld(withVolume(own), withAttempts(ended(setup(), done)))).Claim)
	want{conflict: "another claim's"}.check(t, Decide(newWorld(withVolume(strangers))).Claim)
}

func TestHolderOfThePathIsChosen(t *testing.T) {
	for _, id := range []string{fs1, fs2} {
		s := newWorld(func(w *world) {
			w.Targets.FileSystems[fs2] = volumes.Candidate{ID: fs2, Port: 20491}
			w.holders[path] = []string{id}
		})
		if got := Decide(s).Claim.Pending; got == nil || got.FileSystemID != id {
			t.Errorf("%s holds the path, chosen is %v", id, got)
		}
	}
}

func TestRepeatedOperationIsTheRecordedOne(t *testing.T) {
	s := newWorld(func(w *world) {
		w.Class.Parameters = map[string]string{"base_path": "/elsewhere"}
		w.Targets.FileSystems = map[string]volumes.Candidate{
			fs1: {ID: fs1, Port: 20490, Unusable: "the EFS API does not list it"}, fs2: {ID: fs2, Port: 20491},
		}
	}, withAttempts(ended(setup(), lost)))
	got := Decide(s).Claim.Pending
	if got == nil || got.Operation.Path != path || got.FileSystemID != fs1 {
		t.Errorf("a lost setup is repeated as %+v", got)
	}
}
