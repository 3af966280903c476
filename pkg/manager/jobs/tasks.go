package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Usage gets what surveys count.
type Usage interface {
	Counted(fileSystemID string, counted []operations.Usage, at time.Time)
	// Busy reports whether some of that is not recorded yet.
	Busy() bool
}

func (s state) fileSystem() background.FileSystem {
	return background.FileSystem{
		ID: s.id, Now: s.now, Root: s.root, RootVolume: s.rootVolume, NotReady: s.notReady, Listed: s.listed, Gone: s.gone,
	}
}

func (s state) sweep() background.Sweep {
	sweep := background.Sweep{FileSystem: s.fileSystem(), Jobs: s.sweeps, Delay: s.sweepDelay}
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
	return background.Survey{FileSystem: s.fileSystem(), Jobs: s.surveys, Interval: s.surveyInterval, Others: s.otherSurveys}
}

// sweptSince says that a sweep has begun after a Job last filled the trash, or ended, so that it removes what
// that has left.
func (s state) sweptSince(m *mountJob) bool { return background.BegunSince(s.sweeps, m.filledAt()) }

// filledAt is when a Job last filled the trash, its end if that is not known.
func (m *mountJob) filledAt() time.Time {
	if m.filledTrash.IsZero() {
		return m.end()
	}
	return m.filledTrash
}

// otherSurveys counts the surveys of other file systems that run.
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
		return fmt.Errorf("file system %s: %w", s.id, err)
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
	if err := c.release(ctx, releaseJob{job: job}); err != nil { // last: a Job that is released is not looked at again
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
	if s.root != nil {
		err = c.annotate(ctx, s.root, r)
	}
	// A volume of another server is about to be deleted, and the cluster may forbid us to change it.
	if v := s.rootVolume; v != nil && v.Spec.NFS != nil && v.Spec.NFS.Server == wellknown.LoopbackAddress {
		err = errors.Join(err, c.annotate(ctx, v, r))
	}
	if err != nil {
		return 0, err
	}
	for _, w := range r.Warnings {
		if s.root != nil {
			c.events.Warn(s.root, w.Reason, w.Key, w.Message)
		}
	}
	switch outcome := r.Job.Outcome; {
	case r.Finished > 0:
		c.options.Log.InfoContext(ctx, "survey finished", slog.String("fileSystem", s.id), slog.Duration("duration", r.Finished))
	case r.Annotation == wellknown.AnnotationNextSweep && s.listed && (outcome.State == mountjobs.Succeeded || outcome.State == mountjobs.Finished):
		c.metrics.swept(s.id, outcome.Task.Swept)
	}
	return 0, c.release(ctx, releaseJob{job: r.Job.Job})
}

func (c *Controller) annotate(ctx context.Context, object metav1.Object, r background.Record) error {
	if object.GetAnnotations()[r.Annotation] == r.Value {
		return nil
	}
	return objects.Patch(ctx, c.client, object, objects.Metadata("annotations", map[string]string{r.Annotation: r.Value}))
}

// readLog begins to read the log of a survey. It comes from a kubelet, which may hang, so the file system does not
// wait for it.
func (c *Controller) readLog(ctx context.Context, s state, job *background.Job) {
	c.logs.Begin(job)
	c.reads.Go(func() {
		counted, err := c.logs.Counted(ctx, job, s.now)
		if err != nil && ctx.Err() == nil {
			c.options.Log.WarnContext(ctx, "log of a survey cannot be read", slog.String("job", job.Job.Name), slog.Any("err", err))
		}
		if len(counted) > 0 {
			c.options.Usage.Counted(s.id, counted, s.now)
		}
		c.enqueue(s.id)
	})
}
