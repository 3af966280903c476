package jobs

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// decided is how many claims one function has the controller decide about.
func (l loop) decided(f func()) int64 {
	before := l.decisions.Load()
	f()
	return l.decisions.Load() - before
}

// TestSyncDecidesAboutTheClaimsOfItsJobOnly, however many wait.
func TestSyncDecidesAboutTheClaimsOfItsJobOnly(t *testing.T) {
	l := newLoop(t)
	for n := range 3000 {
		claim := waitingClaim(n)
		add(t, l.gatherer.Caches.Claims.GetStore(), claim)
		l.gatherer.Decide(claim.UID)
	}
	var p plan
	if got := l.decided(func() { p = planFor(ready(l.observe(fileSystem))) }); got > 1 {
		t.Errorf("a sync decides about %d claims, want none", got)
	}
	due := dueOf(t, p)
	if len(due) != maxPending || due[0].Claim != claimNumber(0) {
		t.Errorf("got %d operations that are due, the first one of claim %s", len(due), due[0].Claim)
	}
	if got := l.decided(func() { l.confirm(due[:l.options.Batch]) }); got != int64(l.options.Batch) {
		t.Errorf("a Job of %d operations decides about %d claims", l.options.Batch, got)
	}
}

// ready has a root claim that Jobs can use.
func ready(s state) state {
	s.NotReady = ""
	return s
}

// dueOf are the operations that a plan makes the next Job of.
func dueOf(t testing.TB, p plan) []decide.Pending {
	t.Helper()
	next := changesOf[createJob](p)
	if len(next) != 1 {
		t.Fatalf("got %+v, want a Job", p)
	}
	return next[0].due
}

// TestTargetsChangedDecidesAboutNothing: it enqueues the file systems.
func TestTargetsChangedDecidesAboutNothing(t *testing.T) {
	c := newLoop(t)
	for n := range 100 {
		add(t, c.gatherer.Caches.Claims.GetStore(), waitingClaim(n))
	}
	if got := c.decided(c.TargetsChanged); got != 0 {
		t.Errorf("it decides about %d claims at once", got)
	}
}

// TestSeriesOfAFileSystemThatIsGone ends.
func TestSeriesOfAFileSystemThatIsGone(t *testing.T) {
	c := newLoop(t)
	c.metrics.swept(fileSystem, operations.Swept{Kept: 7})
	if c.TargetsChanged(); testutil.CollectAndCount(c.metrics.trash) != 1 {
		t.Error("a file system of the table has no series")
	}
	c.gatherer.Targets = func() targets.Snapshot { return targets.Snapshot{Known: true} }
	if c.TargetsChanged(); testutil.CollectAndCount(c.metrics.trash) != 0 || len(c.metrics.keepOnly(nil)) > 0 {
		t.Error("the series stays")
	}
}

// TestVolumeOfTwoClaimsIsCleanedUpOnce: its name is that of one claim's volume, its claimRef names another.
func TestVolumeOfTwoClaimsIsCleanedUpOnce(t *testing.T) {
	l := newLoop(t)
	volume := releasedVolume(1)
	volume.Spec.ClaimRef.UID = claimNumber(2)
	add(t, l.gatherer.Caches.Volumes.GetStore(), volume)
	add(t, l.gatherer.Caches.Volumes.GetStore(), releasedVolume(3))
	for n := range 4 {
		l.gatherer.Decide(claimNumber(n))
	}
	if p := planFor(ready(l.observe(fileSystem))); len(dueOf(t, p)) != 2 {
		t.Errorf("got %+v, want one operation for each volume", p)
	}
}

// TestClaimIsNotHiddenByRestores that failed: more of them wait than a sync reads.
func TestClaimIsNotHiddenByRestores(t *testing.T) {
	l := newLoop(t)
	const restores = maxPending + 50
	for n := range restores + 1 {
		claim := waitingClaim(n)
		if n < restores {
			claim.Annotations[wellknown.AnnotationRestore] = string(claimNumber(900_000))
		}
		add(t, l.gatherer.Caches.Claims.GetStore(), claim)
		l.gatherer.Decide(claim.UID)
	}
	p := planFor(ready(l.observe(fileSystem)))
	if due := dueOf(t, p); !slices.ContainsFunc(due, func(w decide.Pending) bool { return w.Claim == claimNumber(restores) }) {
		t.Errorf("got %d operations that are due, without that of the claim", len(due))
	}
}

// TestOperationThatFitsIntoNoJobLeavesItsPlace to others until its claim is decided about again.
func TestOperationThatFitsIntoNoJobLeavesItsPlace(t *testing.T) {
	l := newLoop(t)
	for n := range 2 {
		claim := waitingClaim(n)
		add(t, l.gatherer.Caches.Claims.GetStore(), claim)
		l.gatherer.Decide(claim.UID)
	}
	due := dueOf(t, planFor(ready(l.observe(fileSystem))))
	due[0].Operation.Record = make([]byte, 2*wellknown.MaxOperationsBytes)
	if _, err := l.batch(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	if left := dueOf(t, planFor(ready(l.observe(fileSystem)))); len(left) != 1 || left[0].Claim != due[1].Claim {
		t.Errorf("got %+v, want the other operation", left)
	}
	l.gatherer.Decide(due[0].Claim)
	if all := dueOf(t, planFor(ready(l.observe(fileSystem)))); len(all) != 2 {
		t.Errorf("got %+v, want both", all)
	}
}

// TestJobsKnowThatAServerHasVolumes: its disk may be another one. Behind an id of EFS there is no other.
func TestJobsKnowThatAServerHasVolumes(t *testing.T) {
	l := newLoop(t)
	isServer := false
	l.gatherer.Targets = func() targets.Snapshot { return targets.Snapshot{Servers: map[string]bool{fileSystem: isServer}} }
	expect := func(what string, want bool) {
		t.Helper()
		if got := l.spec(state{FileSystem: background.FileSystem{ID: fileSystem}}, mountjobs.Mount).Used; got != want {
			t.Errorf("%s: it is used: %v", what, got)
		}
	}
	isServer = true
	expect("a server without volumes", false)
	add(t, l.gatherer.Caches.Volumes.GetStore(), releasedVolume(1))
	expect("a server with a volume", true)
	isServer = false
	expect("EFS with a volume", false)
}
