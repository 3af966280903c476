package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// A clone Job copies one volume, beside the mount Job of its file system and some other clone Jobs.

// batched are the pending operations that mount Jobs carry.
func (s state) batched() []decide.Pending { return s.pendingThat(false) }

func (s state) pendingThat(copies bool) (found []decide.Pending) {
	for _, pending := range s.pending() {
		if pending.Operation.Copies() == copies {
			found = append(found, pending)
		}
	}
	return found
}

// planClones plans what becomes of clone Jobs, and creates the next one.
//
//	clone Job  its claim, file system  what is done
//	running    either is gone          the Job is ended; the claims loop has what it copied removed
//	running    exist                   what keeps it from starting, or how far it is, is reported
//	ended      any                     the Job is released once its outcome is used
func (p *plan) planClones(s state) {
	running := 0
	for i := range s.clones {
		switch m := &s.clones[i]; {
		case m.outcome.HoldsFileSystem():
			running++
			p.recheck(m.outcome.Until)
			p.planRunningClone(s, m)
		case m.unreleased && (m.err != nil || m.used):
			p.add(releaseJob{m.job, !m.outcome.Report.Succeeded()})
		case s.keepsRoot(m):
			p.freeRoot(s, m)
		}
	}
	p.planNextClone(s, running)
}

func (p *plan) planRunningClone(s state, m *mountJob) {
	if m.abandoned || s.gone {
		p.add(endJob{m.job})
		return
	}
	p.endUnstartable(s, m)
	created := m.job.CreationTimestamp.Time
	reason, message := mountjobs.Diagnose(m.job, newestPod(m.pods), m.warnings)
	switch {
	case reason == "":
		pod := newestPod(m.pods) // before it runs, it has no log
		if p.isDue(laterOf(m.progressDue, created.Add(background.FirstProgress)), s.now) && pod != nil && pod.Status.Phase == corev1.PodRunning {
			p.add(reportProgress{m})
		}
	case p.isDue(created.Add(startReportDelay), s.now):
		for _, o := range m.outcome.Operations {
			p.add(report{operation: o, message: fmt.Sprintf("Job %s: %s", m.job.Name, message)})
		}
	}
}

// planNextClone creates one Job at a time, because the cache must have it before the next gets its number.
func (p *plan) planNextClone(s state, running int) {
	var due []decide.Pending
	for _, pending := range s.pendingThat(true) {
		if p.isDue(pending.Due, s.now) {
			due = append(due, pending)
		}
	}
	next := s.nextClone(due)
	switch {
	case len(due) == 0 || s.rootGoes():
	case s.notReady != "":
		p.reportNotReady(s, due)
	case running < wellknown.MaxClones && next != nil:
		p.add(createClone{*next, s.podlessOf(s.clones)})
	default:
		for _, pending := range due {
			if p.isDue(pending.Since.Add(queueReportDelay), s.now) {
				p.add(report{operation: pending.Operation, queued: true, message: fmt.Sprintf("a clone Job copies claim %s when one of the %d that run on file system %s has ended",
					pending.Operation.SourceClaim, running, s.id)})
			}
		}
	}
}

// nextClone returns the oldest copy that is due of the namespace of which the fewest run. One namespace leaves a
// place to the others that have copies waiting, whenever those are due: a copy can take hours. nil is none.
func (s state) nextClone(due []decide.Pending) (next *decide.Pending) {
	running, waiting := map[string]int{}, map[string]bool{}
	for _, pending := range s.pendingThat(true) {
		waiting[pending.Operation.Namespace] = true
	}
	for i := range s.clones {
		if m := &s.clones[i]; m.outcome.HoldsFileSystem() && len(m.outcome.Operations) > 0 {
			running[m.outcome.Operations[0].Namespace]++
		}
	}
	for i := range due {
		namespace := due[i].Operation.Namespace
		full := len(waiting) > 1 && running[namespace] >= wellknown.MaxClones-1
		if !full && (next == nil || running[namespace] < running[next.Operation.Namespace]) {
			next = &due[i]
		}
	}
	return next
}

// beginProgress has an event written about how far a clone is. Its log comes from a kubelet, which may hang, so
// the file system does not wait for it. A log that cannot be read now is read the next time.
func (c *Controller) beginProgress(ctx context.Context, s state, m *mountJob) (again time.Duration) {
	job, pod, ops := m.job.Name, newestPod(m.pods).Name, m.outcome.Operations
	c.reads.Go(func() {
		if err := c.reportProgress(ctx, job, pod, ops); err != nil && ctx.Err() == nil {
			c.options.Log.WarnContext(ctx, "progress of a clone is not known", slog.String("job", job), slog.Any("err", err))
		}
	})
	return c.logs.BeginProgress(m.job.UID, s.now)
}

func (c *Controller) reportProgress(ctx context.Context, job, pod string, ops []operations.Operation) error {
	found, ok, err := c.logs.Progress(ctx, pod)
	if err != nil || !ok {
		return err
	}
	for _, o := range ops {
		c.report(report{operation: o, queued: true, message: fmt.Sprintf("Job %s copies claim %s: %d of the %d files found so far, %d bytes",
			job, o.SourceClaim, found.Files, found.Found, found.Bytes)})
	}
	return nil
}

// makes says what a Job does for an operation.
func makes(job string, o operations.Operation) string {
	if o.Copies() {
		return fmt.Sprintf("Job %s copies claim %s to directory %s", job, o.SourceClaim, o.Path)
	}
	return fmt.Sprintf("Job %s makes directory %s", job, o.Path)
}

// podlessOf are those of some Jobs that seem to be over without an outcome.
func (s state) podlessOf(all []mountJob) (jobs []*batchv1.Job) {
	for i := range all {
		if m := &all[i]; s.isPodless(m) {
			jobs = append(jobs, m.job)
		}
	}
	return jobs
}
