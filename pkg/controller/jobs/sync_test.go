package jobs

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
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
	if got := l.decided(func() { p = decide(l.observe(fileSystem)) }); got > 1 {
		t.Errorf("a look decides about %d claims, want none", got)
	}
	if len(p.due) != maxPending || p.due[0].Claim != claimNumber(0) {
		t.Errorf("got %d operations that are due, the first one of claim %s", len(p.due), p.due[0].Claim)
	}
	if got := l.decided(func() { l.confirm(p.due[:l.options.Batch]) }); got != int64(l.options.Batch) {
		t.Errorf("a Job of %d operations decides about %d claims", l.options.Batch, got)
	}
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
	sync := func() {
		if _, err := c.sync(t.Context(), fileSystem); err != nil {
			t.Fatal(err)
		}
	}
	if sync(); testutil.CollectAndCount(c.metrics.trash) != 1 {
		t.Error("a file system of the table has no series")
	}
	c.gatherer.Targets = func() targets.Snapshot { return targets.Snapshot{Known: true} }
	if sync(); testutil.CollectAndCount(c.metrics.trash) != 0 {
		t.Error("the series stays")
	}
	if left := c.metrics.fileSystems(); len(left) != 0 {
		t.Errorf("%q are remembered", left)
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
	if p := decide(l.observe(fileSystem)); len(p.due) != 2 {
		t.Errorf("got %d operations, want one for each volume: %+v", len(p.due), p.due)
	}
}

// TestClaimIsNotHiddenByRestores that failed: more of them wait than a look reads.
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
	p := decide(l.observe(fileSystem))
	if !slices.ContainsFunc(p.due, func(w lifecycle.Pending) bool { return w.Claim == claimNumber(restores) }) {
		t.Errorf("got %d operations that are due, without that of the claim", len(p.due))
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
	due := decide(l.observe(fileSystem)).due
	due[0].Operation.Record = make([]byte, 2*wellknown.MaxOperationsBytes)
	if _, _, err := l.pack(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	if left := decide(l.observe(fileSystem)).due; len(left) != 1 || left[0].Claim != due[1].Claim {
		t.Errorf("got %+v, want the other operation", left)
	}
	l.gatherer.Decide(due[0].Claim)
	if all := decide(l.observe(fileSystem)).due; len(all) != 2 {
		t.Errorf("got %+v, want both", all)
	}
}
