package jobs

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// plan is what is to be done on one file system.
type plan struct {
	// release are Jobs that may be forgotten.
	release []*batchv1.Job
	// free are Jobs that wait for a sweep or for the next try, and whose pods keep the root claim
	// from going.
	free []*batchv1.Job
	// running is the Job that holds the file system, nil if none does.
	running *mountJob
	// unschedulable is the running Job if it found no node among those that it may use.
	unschedulable *batchv1.Job
	// due are the operations for the next mount Job, the oldest first; wait is why it cannot be
	// made now, or "".
	due  []lifecycle.Pending
	wait string
	// avoid are the nodes where the last Jobs failed.
	avoid []string
	// podless are Jobs that seem to be over without a word; the cache may only be behind.
	podless []*batchv1.Job
	sweep   sweepPlan
	// again is when to look again although nothing has happened; zero is never.
	again time.Time
}

// decide says what is to be done.
//
//	newest mount Job   root claim  operations       what is done
//	running            any         any              nothing, until its end is due
//	ended, or none     not ready   due              told
//	ended, or none     ready       due              the next Job
//	ended, or none     any         due later, none  nothing, until then
//
// Whatever else, Jobs of which everything was used are released, and trash is swept.
func decide(w state) plan {
	p := plan{sweep: decideSweep(w)}
	p.recheck(p.sweep.again)
	for i := range w.mounts {
		m := &w.mounts[i]
		switch {
		case m.outcome.HoldsFileSystem():
			p.running = m
			p.recheck(m.outcome.Until)
			p.planPlacing(m, w.now)
		case m.unreleased && (m.err != nil || m.used && (!m.fillsTrash || w.sweptSince(m) || w.erased)):
			p.release = append(p.release, m.job)
		case m.unreleased && w.rootGoes() && m.job.DeletionTimestamp == nil && mountjobs.IsOver(m.job):
			p.planFree(m, w.now)
		case m.unreleased && m.outcome.State == mountjobs.Lost && len(m.pods) == 0:
			p.podless = append(p.podless, m.job)
		}
	}
	if p.running != nil {
		return p
	}
	p.planNext(w)
	return p
}

func (p *plan) planNext(w state) {
	for _, wanted := range w.waiting() {
		if wanted.Due.After(w.now) {
			p.recheck(wanted.Due)
			continue
		}
		p.due = append(p.due, wanted)
	}
	// A volume that names two claims, in its name and in its claimRef, is decided about for both.
	p.due = p.holdBackRestores(slices.CompactFunc(p.due, isSame), w.now)
	if len(p.due) == 0 {
		return
	}
	p.wait = w.notReady
	p.avoid = mountjobs.NodesToAvoid(w.failedNodes(), w.agents)
}

// holdBackRestores gives the operations that are due, unless all are restores that failed time and
// again: those ride in Jobs that others want, and have one of their own only after a while. Otherwise claims that
// restore unknown uids would keep one Job after the other running, which others have to wait for.
func (p *plan) holdBackRestores(due []lifecycle.Pending, now time.Time) []lifecycle.Pending {
	var first time.Time
	for _, wanted := range due {
		if wanted.Operation.Kind != operations.Restore || volumes.AttemptOf(wanted.Operation) <= promptTries {
			return due
		}
		if first.IsZero() || wanted.Turn().Before(first) {
			first = wanted.Turn()
		}
	}
	if at := first.Add(rideTime); !first.IsZero() && at.After(now) {
		p.recheck(at)
		return nil
	}
	return due
}

const (
	// promptTries of a restore begin a Job at once.
	promptTries = 2
	// rideTime is how long a restore that failed more often waits for a Job of others.
	rideTime = 4 * time.Minute
)

// look remembers the earliest time.
func (p *plan) recheck(at time.Time) {
	if !at.IsZero() && (p.again.IsZero() || at.Before(p.again)) {
		p.again = at
	}
}

// planPlacing ends a Job that avoids nodes and finds no other. What a node has room for, or what
// else keeps Jobs from it, only the scheduler knows.
func (p *plan) planPlacing(m *mountJob, now time.Time) {
	if !mountjobs.AvoidsNodes(m.job) || !mountjobs.FindsNoNode(m.pods) {
		return
	}
	if at := m.job.CreationTimestamp.Add(placingTime); at.After(now) {
		p.recheck(at)
		return
	}
	p.unschedulable = m.job
}

// placingTime is how long a Job that avoids nodes may look for another. All claims wait for it.
const placingTime = 30 * time.Second

// planFree frees a Job of which use was made, or was not for a while: it waits for its next try
// then, which knows what the pod has reported or finds it out again.
func (p *plan) planFree(m *mountJob, now time.Time) {
	if at := m.end().Add(useDelay); !m.used && at.After(now) {
		p.recheck(at)
		return
	}
	p.free = append(p.free, m.job)
}

// useDelay is longer than it takes to make use of an outcome, at the default rate of requests.
const useDelay = 30 * time.Second

// rootGoes says that the root claim is being deleted. It goes with the last pod that has it, and no
// sweep can begin before another one is there.
func (w state) rootGoes() bool { return w.root != nil && w.root.DeletionTimestamp != nil }

// failedNodes are those of the newest Jobs, back to the last one that did well. If avoiding them has
// led nowhere meanwhile, they are none.
func (w state) failedNodes() []string {
	var nodes []string
	for _, m := range slices.Backward(w.mounts) {
		if m.didWell() || w.now.Sub(m.job.CreationTimestamp.Time) > nodeBlame {
			break
		}
		if m.wasNowhere() && mountjobs.AvoidsNodes(m.job) {
			return nil
		}
		if m.err == nil && m.outcome.BlamesNode() {
			nodes = append(nodes, m.outcome.Node)
		}
	}
	return nodes
}

// didWell also knows a Job that was used up: its operations are not kept, and without them its
// outcome cannot be read.
func (m *mountJob) didWell() bool {
	return m.outcome.State == mountjobs.Succeeded || !m.unreleased && m.job.Status.Succeeded > 0
}

// wasNowhere says that a Job is over and no node is known to have had its pod.
func (m *mountJob) wasNowhere() bool {
	over := m.outcome.State == mountjobs.Lost || m.outcome.State == mountjobs.Stuck
	return over && m.outcome.Node == ""
}

// nodeBlame is how long a failure counts against its node.
const nodeBlame = 30 * time.Minute

// sweepPlan is what is to be done about the trash.
type sweepPlan struct {
	// begin says that a sweep is due.
	begin bool
	// record is the newest sweep, if it has ended and nobody has made use of that yet.
	record *sweepJob
	// next is when the trash has something to remove again; zero is never.
	next time.Time
	// release are older sweeps.
	release []*batchv1.Job
	// deleteRunning are sweeps of a file system that is gone, whose pods keep its root claim from going.
	deleteRunning []*batchv1.Job
	again         time.Time
}

// defaultSweepDelay lets a burst of deletions end before the trash is emptied.
const defaultSweepDelay = 10 * time.Second

// decideSweep says what is to be done about the trash.
//
//	newest sweep  trash                         what is done
//	running       the file system is gone       the Job is deleted
//	running       any                           nothing
//	ended, unreleased  any                           its outcome is recorded, then it is released
//	ended, none   a Job has filled it since     sweep, after a moment
//	ended, none   the recorded time has come    sweep
//	ended, none   nothing is recorded           sweep once, long after a Job that did well
func decideSweep(w state) sweepPlan {
	var p sweepPlan
	for i := range w.sweeps {
		s := &w.sweeps[i]
		newest := i == len(w.sweeps)-1
		switch {
		case s.outcome.HoldsFileSystem() && w.gone:
			p.deleteRunning = append(p.deleteRunning, s.job)
		case s.outcome.HoldsFileSystem():
			return sweepPlan{again: s.outcome.Until, release: p.release}
		case s.unreleased && newest:
			p.record, p.next = s, w.nextSweep()
			return p
		case s.unreleased:
			p.release = append(p.release, s.job)
		}
	}
	due := w.sweepDue()
	if due.IsZero() || w.notReady != "" {
		return p
	}
	p.begin, p.again = !due.After(w.now), due
	return p
}

// nextSweep is when the newest sweep wants another one. The trash goes by the clock of the file
// server, so what counts is how long it is until then.
func (w state) nextSweep() time.Time {
	newest := w.sweeps[len(w.sweeps)-1]
	if swept := newest.outcome.Swept; newest.outcome.State == mountjobs.Succeeded {
		switch {
		case swept.NextIn > 0:
			return wholeSecond(w.now.Add(time.Duration(min(swept.NextIn, longestWait)) * time.Second))
		case swept.Next.IsZero():
			return swept.Next
		}
		// The version before has told a time by the clock of a node. One that has passed already must
		// not begin sweep after sweep.
		return wholeSecond(later(swept.Next, w.now.Add(wellknown.DefaultProvisionBackoff)))
	}
	if newest.outcome.GotOn() {
		return w.now
	}
	failures := 0
	for _, s := range slices.Backward(w.sweeps) {
		if s.outcome.State == mountjobs.Succeeded || s.outcome.GotOn() {
			break
		}
		failures++
	}
	return w.now.Add(mountjobs.Backoff(wellknown.DefaultProvisionBackoff, failures))
}

// longestWait, in seconds, is more than anybody keeps what is deleted.
const longestWait = 200 * 365 * 24 * 60 * 60

// wholeSecond rounds up to what can be written down. A moment too early, sweep after sweep would find
// that the time has not come.
func wholeSecond(at time.Time) time.Time {
	if whole := at.Truncate(time.Second); whole.Before(at) {
		return whole.Add(time.Second)
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sweepDue is when the next sweep should begin; zero is never.
func (w state) sweepDue() time.Time {
	due := w.recordedSweep()
	for i := range w.mounts {
		m := &w.mounts[i]
		if !m.unreleased || !m.fillsTrash || w.sweptSince(m) {
			continue
		}
		if at := m.end().Add(w.sweepDelay); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// noSweep, in place of a time, says that the trash has nothing to remove.
const noSweep = "never"

// recordedSweep is when the root claim says that the trash has something to remove; zero is never.
func (w state) recordedSweep() time.Time {
	if w.root == nil {
		return time.Time{}
	}
	record := w.root.Annotations[wellknown.AnnotationNextSweep]
	if record == noSweep {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, record)
	if err != nil {
		return w.firstSweep()
	}
	return at
}

// firstSweep is when to look at a trash of which nothing is known: an earlier installation may have
// left directories there, with times that only the trash tells. A file system where no Job did well
// is left alone: it may have no volumes, and need not let anybody write to it.
func (w state) firstSweep() time.Time {
	for i := range w.mounts { // the oldest first
		if m := &w.mounts[i]; m.didWell() && !w.sweptSince(m) {
			return m.end().Add(firstSweepDelay)
		}
	}
	return time.Time{}
}

// firstSweepDelay is long enough for most first sweeps to be those of the first deletion, and
// shorter than Jobs live.
const firstSweepDelay = 10 * time.Minute

// sweptSince says that a sweep has begun after a Job ended, so that it sees what that has left.
func (w state) sweptSince(m *mountJob) bool {
	return slices.ContainsFunc(w.sweeps, func(s sweepJob) bool { return s.job.CreationTimestamp.After(m.end()) })
}

func (m *mountJob) end() time.Time {
	if m.outcome.Ended.IsZero() {
		return m.job.CreationTimestamp.Time
	}
	return m.outcome.Ended
}
