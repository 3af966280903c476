package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Usage gets what surveys count.
type Usage interface {
	Counted(fileSystemID string, counted []operations.Usage, at time.Time)
	// Busy reports whether some of that is not recorded yet.
	Busy() bool
}

func (s state) sweep() background.Sweep {
	sweep := background.Sweep{FileSystem: s.FileSystem, Jobs: s.sweeps, Delay: s.sweepDelay}
	for i := range s.mounts { // the oldest first
		m := &s.mounts[i]
		if s.sweptSince(m) {
			continue
		}
		if filled := m.filledAt(); m.unreleased && m.fillsTrash && (sweep.Filled.IsZero() || filled.Before(sweep.Filled)) {
			sweep.Filled = filled
		}
		if m.succeeded() && sweep.Worked.IsZero() {
			sweep.Worked = m.end()
		}
	}
	return sweep
}

func (s state) survey() background.Survey {
	return background.Survey{FileSystem: s.FileSystem, Jobs: s.surveys, Interval: s.surveyInterval, Others: s.otherSurveys}
}

// sweptSince says that a sweep, which removes what a Job has left, has begun since it last filled the trash, or ended.
func (s state) sweptSince(m *mountJob) bool { return background.BegunSince(s.sweeps, m.filledAt()) }

// filledAt is when a Job last filled the trash, its end if that is not known.
func (m *mountJob) filledAt() time.Time { return cmp.Or(m.filledTrash, m.end()) }

func (c *Controller) otherSurveys(id string) (running int) {
	for _, job := range caches.All[*batchv1.Job](c.gatherer.Caches.Jobs) {
		name, err := mountjobs.Identify(job)
		if err == nil && name.Kind == mountjobs.Survey && name.FileSystemID != id && mountjobs.IsUnreleased(job) && !mountjobs.IsOver(job) {
			running++
		}
	}
	return running
}

func (c *Controller) createTask(ctx context.Context, s state, next background.Create) error {
	spec := c.spec(s, next.Kind)
	spec.Survey = next.Survey
	job, err := mountjobs.Build(spec)
	if err != nil {
		return fmt.Errorf("file system %s: %w", s.ID, err)
	}
	created, err := objects.CreateJob(ctx, c.client, job)
	if created {
		c.metrics.created(next.Kind)
	}
	return err
}

func (c *Controller) deleteTask(ctx context.Context, job *batchv1.Job) error {
	if err := objects.DeleteJob(ctx, c.client, job, metav1.DeletePropagationBackground); err != nil {
		return err
	}
	if err := c.release(ctx, background.Release{Job: job}); err != nil { // last: a Job that is released is not looked at again
		return err
	}
	c.options.Log.InfoContext(ctx, "running Job deleted", slog.String("job", job.Name), slog.String("reason", "FileSystemGone"))
	return nil
}

// record writes what follows from a Job on the root volume too, which stays when the root claim is created again,
// and may exist without one.
func (c *Controller) record(ctx context.Context, s state, r background.Record) (again time.Duration, err error) {
	if r.Finished > 0 && c.options.Usage.Busy() {
		return time.Second, nil // a client that waits for the end of a survey reads claims then
	}
	if s.Root != nil {
		err = c.annotate(ctx, s.Root, r)
	}
	// A volume of another server is about to be deleted, and the cluster may forbid us to change it.
	if v := s.RootVolume; v != nil && v.Spec.NFS != nil && v.Spec.NFS.Server == wellknown.LoopbackAddress {
		err = errors.Join(err, c.annotate(ctx, v, r))
	}
	if err != nil {
		return 0, err
	}
	for _, w := range r.Warnings {
		if s.Root != nil {
			c.events.Warn(s.Root, w.Reason, w.Key, w.Message)
		}
	}
	c.sayEnded(s, r)
	switch outcome := r.Job.Outcome; {
	case r.Finished > 0:
		c.options.Log.InfoContext(ctx, "survey finished", slog.String("fileSystem", s.ID), slog.Duration("duration", r.Finished))
	case r.Annotation == wellknown.AnnotationNextSweep && s.Listed && (outcome.State == mountjobs.Succeeded || outcome.State == mountjobs.Finished):
		c.metrics.swept(s.ID, outcome.Task.Swept)
	}
	return 0, c.release(ctx, background.Release{Job: r.Job.Job})
}

func (c *Controller) sayEnded(s state, r background.Record) {
	var found []status.Condition
	for _, w := range r.Warnings {
		found = append(found, status.Condition{
			Subject: status.Subject{Kind: status.FileSystem, Name: s.ID}, Reason: w.Reason, Message: w.Message, Since: s.Now,
		})
	}
	conditionType := status.Swept
	if r.Job.Outcome.Name.Kind == mountjobs.Survey {
		conditionType = status.Surveyed
	}
	c.options.TaskEnded(s.ID, conditionType, found)
}

func (c *Controller) annotate(ctx context.Context, object metav1.Object, r background.Record) error {
	if object.GetAnnotations()[r.Annotation] == r.Value {
		return nil
	}
	return objects.Patch(ctx, c.client, object, objects.Metadata("annotations", map[string]string{r.Annotation: r.Value}))
}

// readLog begins to read the log of a survey. The file system does not wait: it comes from a kubelet, which may hang.
func (c *Controller) readLog(ctx context.Context, s state, job *background.Job) {
	c.logs.Begin(job)
	c.reads.Go(func() {
		counted, err := c.logs.Counted(ctx, job, s.Now)
		if err != nil && ctx.Err() == nil {
			c.options.Log.WarnContext(ctx, "log of a survey cannot be read", slog.String("job", job.Job.Name), slog.Any("err", err))
		}
		if len(counted) > 0 {
			c.options.Usage.Counted(s.ID, counted, s.Now)
		}
		c.enqueue(s.ID)
	})
}

// A clone Job copies one volume, beside the mount Job of its file system and some other clone Jobs.

func (s state) batched() []decide.Pending { return s.pendingThat(false) }

func (s state) pendingThat(copies bool) []decide.Pending {
	return slices.DeleteFunc(slices.Clone(s.pending()), func(p decide.Pending) bool { return p.Operation.Copies() != copies })
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
		m := &s.clones[i]
		if !m.outcome.HoldsFileSystem() {
			p.planEnded(s, m)
			continue
		}
		running++
		p.Recheck(m.outcome.Until)
		p.planRunningClone(s, m)
	}
	p.planNextClone(s, running)
}

func (p *plan) planRunningClone(s state, m *mountJob) {
	if m.abandoned || s.Gone {
		p.Add(background.End{Job: m.job})
		return
	}
	p.endUnstartable(s, m)
	if _, started := p.reportStart(s, m); !started {
		return
	}
	pod := mountjobs.NewestPod(m.job, m.pods) // before it runs, it has no log
	due := p.IsDue(mountjobs.Later(m.progressDue, m.job.CreationTimestamp.Add(background.FirstProgress)), s.Now)
	if due && pod != nil && pod.Status.Phase == corev1.PodRunning {
		p.Add(reportProgress{m})
	}
}

// planNextClone creates one Job at a time, because the cache must have it before the next gets its number.
func (p *plan) planNextClone(s state, running int) {
	due := p.due(s.pendingThat(true), s.Now)
	next := s.nextClone(due)
	switch {
	case len(due) == 0 || s.rootGoes():
	case s.NotReady != "":
		p.reportNotReady(s, due)
	case running < wellknown.MaxClones && next != nil:
		p.Add(createJob{mountjobs.Clone, []decide.Pending{*next}, s.podlessOf(s.clones)})
	default:
		for _, pending := range due {
			if p.IsDue(pending.Since.Add(queueReportDelay), s.Now) {
				p.Add(report{operation: pending.Operation, queued: true, message: fmt.Sprintf("a clone Job copies claim %s when one of the %d that run on file system %s has ended",
					pending.Operation.SourceClaim, running, s.ID)})
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
	job, pod, ops := m.job.Name, mountjobs.NewestPod(m.job, m.pods).Name, m.outcome.Operations
	c.reads.Go(func() {
		if err := c.reportProgress(ctx, job, pod, ops); err != nil && ctx.Err() == nil {
			c.options.Log.WarnContext(ctx, "progress of a clone is not known", slog.String("job", job), slog.Any("err", err))
		}
	})
	return c.logs.BeginProgress(m.job.UID, s.Now)
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

func makes(job string, o operations.Operation) string {
	if o.Copies() {
		return fmt.Sprintf("Job %s copies claim %s to directory %s", job, o.SourceClaim, o.Path)
	}
	return fmt.Sprintf("Job %s makes directory %s", job, o.Path)
}

func (s state) podlessOf(all []mountJob) (jobs []*batchv1.Job) {
	for i := range all {
		m := &all[i]
		if m.isEnded() && m.outcome.State == mountjobs.Lost && len(m.pods) == 0 && !s.isDone(m) && !s.keepsRoot(m) {
			jobs = append(jobs, m.job)
		}
	}
	return jobs
}
