package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// decided is how many claims one function has the controller decide about.
func (l loop) decided(f func()) int64 {
	before := l.decisions.Load()
	f()
	return l.decisions.Load() - before
}

func volumesOf(waiting []lifecycle.Wanted) map[string]bool {
	names := map[string]bool{}
	for _, w := range waiting {
		names[w.Operation.Volume] = true
	}
	return names
}

// TestSyncDecidesAboutSomeOfManyClaims, and those of other provisioners cost nothing.
func TestSyncDecidesAboutSomeOfManyClaims(t *testing.T) {
	const claims = 3*claimsPerSync + 100
	c := newLoop(t)
	store := c.view.Caches.Claims.GetStore()
	for n := range claims {
		add(t, store, waitingClaim(n, fileSystem))
		other := waitingClaim(claims+n, fileSystem)
		other.Annotations[wellknown.AnnotationStorageProvisioner] = "ebs.csi.aws.com"
		add(t, store, other)
	}
	found := map[string]bool{}
	for round := range 4 {
		var waiting []lifecycle.Wanted
		if got := c.decided(func() { waiting = c.waiting(fileSystem) }); got > claimsPerSync {
			t.Errorf("sync %d decides about %d claims", round, got)
		}
		if round == 0 && !volumesOf(waiting)[wellknown.VolumePrefix+string(claimNumber(0))] {
			t.Error("the first sync leaves the oldest claim out")
		}
		for name := range volumesOf(waiting) {
			found[name] = true
		}
		at := c.passes.again(fileSystem, time.Time{}, now)
		if over := at.IsZero(); over != (round == 3) {
			t.Errorf("after %d syncs, the pass is over: %v", round+1, over)
		}
	}
	if len(found) != claims {
		t.Errorf("%d of %d claims had their turn", len(found), claims)
	}
}

// TestManyReleasedVolumes: a sync decides about some of the volumes that wait for their cleanup.
func TestManyReleasedVolumes(t *testing.T) {
	c := newLoop(t)
	for n := range 5 * claimsPerSync {
		add(t, c.view.Caches.Volumes.GetStore(), releasedVolume(n, fileSystem))
	}
	var waiting []lifecycle.Wanted
	if got := c.decided(func() { waiting = c.waiting(fileSystem) }); got > claimsPerSync || len(waiting) != claimsPerSync {
		t.Errorf("a sync decides about %d claims and finds %d operations", got, len(waiting))
	}
}

// TestClaimComesBeforeThoseOfOtherFileSystems: thousands that wait elsewhere do not delay it.
func TestClaimComesBeforeThoseOfOtherFileSystems(t *testing.T) {
	c := newLoop(t)
	store := c.view.Caches.Claims.GetStore()
	for n := range 3 * claimsPerSync {
		add(t, store, waitingClaim(n, otherFileSystem))
	}
	last := waitingClaim(3*claimsPerSync, fileSystem)
	add(t, store, last)
	if waiting := c.waiting(fileSystem); len(waiting) != 0 {
		t.Fatalf("%d operations are found before the claim has its turn", len(waiting))
	}
	c.changed(last)
	if waiting := c.waiting(fileSystem); len(waiting) != 1 || waiting[0].Operation.ClaimUID != string(last.UID) {
		t.Errorf("got %d operations, want that of the claim", len(waiting))
	}
}

// TestTargetsChangedDecidesAboutNothing: it enqueues the file systems.
func TestTargetsChangedDecidesAboutNothing(t *testing.T) {
	c := newLoop(t)
	for n := range 100 {
		add(t, c.view.Caches.Claims.GetStore(), waitingClaim(n, fileSystem))
	}
	if got := c.decided(c.TargetsChanged); got != 0 {
		t.Errorf("it decides about %d claims at once", got)
	}
	class := c.view.Caches.Class(fileSystem)
	if got := c.decided(func() { c.changed(class) }); got != 0 {
		t.Errorf("an event of their class decides about %d claims at once", got)
	}
}

// TestPassKeepsTheEarliestTime that one of its syncs has asked for, and starts anew after an event.
func TestPassKeepsTheEarliestTime(t *testing.T) {
	p := &passes{}
	var all []candidate
	for n := range 2*claimsPerSync + 1 {
		all = append(all, candidate{since: now, name: fmt.Sprintf("%06d", n), claim: claimNumber(n)})
	}
	soon, later, rested := now.Add(time.Minute), now.Add(time.Hour), now.Add(time.Second)
	for i, step := range []struct {
		event    bool
		at, want time.Time
	}{
		{false, soon, rested},
		{false, later, rested},
		{false, later, soon},
		{false, time.Time{}, rested}, // a new pass
		{true, later, rested},
		{false, time.Time{}, rested},
		{false, time.Time{}, later},
	} {
		if step.event {
			p.restart(fileSystem)
		}
		p.next(fileSystem, all)
		if got := p.again(fileSystem, step.at, rested); !got.Equal(step.want) {
			t.Errorf("sync %d: the next is at %s, want %s", i, got, step.want)
		}
	}
}

// TestSeriesOfAFileSystemThatIsGone ends.
func TestSeriesOfAFileSystemThatIsGone(t *testing.T) {
	c := newLoop(t)
	c.metrics.swept(fileSystem, directories.Swept{Kept: 7})
	sync := func() {
		if _, err := c.sync(t.Context(), fileSystem); err != nil {
			t.Fatal(err)
		}
	}
	if sync(); testutil.CollectAndCount(c.metrics.trash) != 1 {
		t.Error("a file system of the table has no series")
	}
	c.view.Targets = func() targets.Snapshot { return targets.Snapshot{Known: true} }
	if sync(); testutil.CollectAndCount(c.metrics.trash) != 0 {
		t.Error("the series stays")
	}
	if left := c.pace.known(); len(left) != 0 {
		t.Errorf("%q are remembered", left)
	}
}
