package jobs

import (
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// planSweep plans what is to be done about the trash.
//
//	newest sweep       trash                     what is done
//	running            its file system is gone   the Job is deleted
//	running            any                       nothing
//	ended, unreleased  any                       its outcome is recorded, then it is released; without
//	                                             root claim and root volume, once one of them exists
//	ended, none        a Job has filled it since sweep, after a moment
//	ended, none        the recorded time is over sweep
//	ended, none        nothing is recorded       sweep once, long after a Job that succeeded
//
// Of several sweeps that have ended only the newest is recorded: each goes through the whole trash, and
// what an older one has found is out of date.
func (p *plan) planSweep(s state) {
	for i := range s.sweeps {
		sweep := &s.sweeps[i]
		switch {
		case sweep.outcome.HoldsFileSystem() && s.gone:
			p.add(deleteSweep{sweep.job})
		case sweep.outcome.HoldsFileSystem():
			if mountjobs.CannotStart(s.root, sweep.pods) {
				p.add(endJob{sweep.job})
			}
			p.recheck(sweep.outcome.Until)
			return
		case sweep.unreleased && i == len(s.sweeps)-1 && s.listed && s.root == nil && s.rootVolume == nil:
			// They would be created with what they recorded before this sweep, or with nothing, and the
			// time of the next sweep would be lost: the mount Jobs that filled the trash are released.
			p.recheck(s.now.Add(wellknown.DefaultProvisionBackoff))
			return
		case sweep.unreleased && i == len(s.sweeps)-1:
			p.add(recordSweep{sweep, s.nextSweep()})
			return
		case sweep.unreleased:
			p.add(releaseJob{job: sweep.job})
		}
	}
	due := s.sweepDue()
	if due.IsZero() || s.notReady != "" {
		return
	}
	p.recheck(due)
	if !due.After(s.now) {
		p.add(createSweep{})
	}
}

// defaultSweepDelay lets a burst of deletions end before the trash is emptied.
const defaultSweepDelay = 10 * time.Second

// nextSweep is when the next sweep should begin, by the newest one. The trash uses the clock of the file
// server, so what counts is how long it is until then.
func (s state) nextSweep() time.Time {
	newest := s.sweeps[len(s.sweeps)-1].outcome
	if newest.State == mountjobs.Succeeded {
		switch swept := newest.Swept; {
		case swept.NextIn > 0:
			return roundUp(s.now.Add(time.Duration(min(swept.NextIn, longestWait)) * time.Second))
		case swept.Next.IsZero():
			return swept.Next
		default:
			// The version before reported a time by the clock of a node. One that is over already must not
			// begin sweep after sweep.
			return roundUp(slices.MaxFunc([]time.Time{swept.Next, s.now.Add(wellknown.DefaultProvisionBackoff)}, time.Time.Compare))
		}
	}
	if newest.GotOn() {
		return s.now
	}
	failures := 0
	for _, sweep := range slices.Backward(s.sweeps) {
		if sweep.outcome.State == mountjobs.Succeeded || sweep.outcome.GotOn() {
			break
		}
		failures++
	}
	return s.now.Add(mountjobs.Backoff(wellknown.DefaultProvisionBackoff, failures))
}

// longestWait, in seconds, is longer than any deleted directory is kept.
const longestWait = 200 * 365 * 24 * 60 * 60

// roundUp rounds up to what can be written down. A moment too early, sweep after sweep would find
// that the time has not come.
func roundUp(at time.Time) time.Time { return at.Add(time.Second - 1).Truncate(time.Second) }

// sweepDue is when the next sweep should begin; zero is never.
func (s state) sweepDue() time.Time {
	due := s.recordedSweep()
	for i := range s.mounts {
		m := &s.mounts[i]
		at := m.filledAt().Add(s.trashWait())
		if m.unreleased && m.fillsTrash && !s.sweptSince(m) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

const (
	// lately is how far back sweeps count, of which promptSweeps begin without a longer wait.
	lately       = 10 * time.Minute
	promptSweeps = 6
	// fewVolumes is as much as a sweep finds that had better have waited for more.
	fewVolumes = 32
	// longestTrashWait is how long trash waits at most.
	longestTrashWait = 5 * time.Minute
)

// trashWait is how long trash waits for more. While volumes are deleted steadily, it doubles with each sweep that
// found little: each is a Job and a pod.
func (s state) trashWait() time.Duration {
	found := 0
	for i := range s.sweeps {
		sweep := &s.sweeps[i]
		if s.now.Sub(sweep.job.CreationTimestamp.Time) < lately && sweep.outcome.Swept.Volumes < fewVolumes {
			found++
		}
	}
	longer := s.sweepDelay << max(min(found-promptSweeps, 10), 0)
	return max(min(longer, longestTrashWait), s.sweepDelay)
}

// noSweep, in place of a time, says that the trash has nothing to remove.
const noSweep = "never"

// recordedSweep is when the root claim says that the trash has something to remove; zero is never.
func (s state) recordedSweep() time.Time {
	if s.root == nil {
		return time.Time{}
	}
	record := s.root.Annotations[wellknown.AnnotationNextSweep]
	if record == noSweep {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, record)
	if err != nil {
		return s.firstSweep()
	}
	return at
}

// firstSweep is when to sweep a trash of which nothing is known: an earlier installation may have
// left directories there, with times that only the trash has. A file system where no Job succeeded
// is left alone: it may have no volumes, and need not be writable.
func (s state) firstSweep() time.Time {
	for i := range s.mounts { // the oldest first
		if m := &s.mounts[i]; m.succeeded() && !s.sweptSince(m) {
			return m.end().Add(firstSweepDelay)
		}
	}
	return time.Time{}
}

// firstSweepDelay is long enough for most first sweeps to be those of the first deletion, and
// shorter than Jobs live.
const firstSweepDelay = 10 * time.Minute

// sweptSince says that a sweep has begun after a Job last filled the trash, or ended, so that it removes what
// that has left.
func (s state) sweptSince(m *mountJob) bool {
	return slices.ContainsFunc(s.sweeps, func(sweep sweepJob) bool { return sweep.job.CreationTimestamp.After(m.filledAt()) })
}

// filledAt is when a Job last filled the trash, its end if that is not known.
func (m *mountJob) filledAt() time.Time {
	if m.filledTrash.IsZero() {
		return m.end()
	}
	return m.filledTrash
}
