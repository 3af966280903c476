package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// catchUp is how long a cache may be behind, most of the time.
const catchUp = 100 * time.Millisecond

// dropDelay is the wait after operations were dropped because claims or volumes, read live, are not as
// the cache has them.
const dropDelay = time.Second

// apply is the only writer of this loop.
func (c *Controller) apply(ctx context.Context, w state, p plan) (again time.Duration, err error) {
	if !p.again.IsZero() {
		again = max(p.again.Sub(w.now), 0) + catchUp
	}
	// The next Job may be made of what those tell that are released.
	sooner, err := c.next(ctx, w, p)
	err = errors.Join(err, c.release(ctx, p), c.free(ctx, p.free), c.applySweep(ctx, w, p))
	return earliest(again, sooner), err
}

// next makes the next mount Job, or tells why there is none.
func (c *Controller) next(ctx context.Context, w state, p plan) (again time.Duration, err error) {
	switch {
	case p.running != nil:
		return c.reportRunning(w, p.running), c.endUnschedulable(ctx, p.unschedulable)
	case len(p.due) == 0:
		return 0, nil
	case p.wait != "":
		return c.reportNotReady(w, p), nil
	}
	return c.start(ctx, w, p)
}

// earliest is the shorter of two waits; zero is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// release lets go of Jobs of which everything was used.
func (c *Controller) release(ctx context.Context, p plan) error {
	var errs []error
	for _, job := range append(p.release, p.sweep.release...) {
		errs = append(errs, c.releaseJob(ctx, job))
	}
	return errors.Join(errs...)
}

func (c *Controller) releaseJob(ctx context.Context, job *batchv1.Job) error {
	return kubeobjects.RemoveFinalizer(ctx, c.client, job, wellknown.FinalizerOutcome)
}

// start makes the next Job, of what is still wanted when it is looked at live.
func (c *Controller) start(ctx context.Context, w state, p plan) (again time.Duration, err error) {
	behind, err := c.isBehind(ctx, p.podless)
	if err != nil {
		c.reportNotCreated(p.due, "reading the pods of the last one", err)
	}
	if behind || err != nil {
		return catchUp, err
	}
	packed, again, err := c.pack(ctx, p.due)
	if err != nil {
		c.reportNotCreated(p.due, "reading what it is about", err)
		return 0, err
	}
	if len(packed.Batch) == 0 {
		return again, nil
	}
	spec := mountjobs.Spec{
		Settings: c.options.Jobs, FileSystemID: w.id, Aliases: c.options.Aliases[w.id],
		Number:     mountjobs.NextNumber(mountjobs.Mount, w.id, w.named),
		Operations: packed.Batch, AvoidNodes: p.avoid,
	}
	job, err := mountjobs.Build(spec)
	if err != nil {
		c.reportNotCreated(p.due, "building it", err)
		return 0, fmt.Errorf("file system %s: %w", w.id, err)
	}
	created, err := c.client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return catchUp, nil // another leader's, or ours, that the cache has not seen yet
	}
	if err != nil {
		c.reportNotCreated(p.due, "creating it", err)
		return 0, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	c.options.Log.InfoContext(ctx, "mount Job created",
		slog.String("job", created.Name), slog.String("fileSystem", w.id), slog.Int("operations", len(packed.Batch)))
	c.metrics.created(mountjobs.Mount, len(packed.Batch))
	c.reportProvisioning(created.Name, packed.Batch)
	return 0, nil
}

// pack chooses the operations of the next Job first, and reads live what concerns those: reading
// all that wait would cost as much for each Job as for all of them together. again is not zero if
// nothing is left of the chosen ones.
func (c *Controller) pack(ctx context.Context, due []lifecycle.Pending) (packed mountjobs.Packed, again time.Duration, err error) {
	waiting := make([]operations.Operation, len(due))
	for i, wanted := range due {
		waiting[i] = wanted.Operation
	}
	chosen := c.packFit(waiting)
	for _, unfit := range chosen.Unfit {
		i := slices.IndexFunc(due, func(w lifecycle.Pending) bool { return w.Operation.Volume == unfit.Operation.Volume })
		c.gatherer.Unindex(due[i].Claim)
	}
	ops, err := c.confirmLive(ctx, c.confirm(packedOf(due, chosen.Batch)))
	if err != nil {
		return mountjobs.Packed{}, 0, err
	}
	ops, err = c.withNamespaceUIDs(ctx, ops)
	if err != nil {
		return mountjobs.Packed{}, 0, err
	}
	packed = c.packFit(ops) // with owners to release, and with uids, they may be too many
	if len(packed.Batch) == 0 && len(due) > 0 {
		again = dropDelay
	}
	return packed, again, nil
}

func (c *Controller) packFit(ops []operations.Operation) mountjobs.Packed {
	packed := mountjobs.Pack(ops, c.options.Batch)
	for _, unfit := range packed.Unfit {
		c.reportOperation(unfit.Operation, "the operation cannot be sent to a mount Job: "+unfit.Err.Error())
	}
	return packed
}

// isBehind looks live for the pods of Jobs that seem to be over without a word.
func (c *Controller) isBehind(ctx context.Context, podless []*batchv1.Job) (bool, error) {
	for _, job := range podless {
		pods, err := c.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil {
			return false, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
		}
		for i := range pods.Items {
			if metav1.IsControlledBy(&pods.Items[i], job) {
				return true, nil
			}
		}
	}
	return false, nil
}

// applySweep records how the last sweep ended, or starts the next.
func (c *Controller) applySweep(ctx context.Context, w state, p plan) error {
	s := p.sweep
	if len(s.deleteRunning) > 0 {
		return c.deleteRunning(ctx, s.deleteRunning)
	}
	if s.record != nil {
		return c.recordSweep(ctx, w, s)
	}
	if !s.begin {
		return nil
	}
	job, err := mountjobs.BuildSweep(mountjobs.Spec{
		Settings: c.options.Jobs, FileSystemID: w.id, Aliases: c.options.Aliases[w.id],
		Number:     mountjobs.NextNumber(mountjobs.Sweep, w.id, w.named),
		AvoidNodes: mountjobs.NodesToAvoid(w.failedNodes(), w.agents),
	})
	if err != nil {
		return fmt.Errorf("file system %s: %w", w.id, err)
	}
	_, err = c.client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	c.metrics.created(mountjobs.Sweep, 0)
	return nil
}

// deleteRunning deletes Jobs that have nothing to do any more, with their pods.
func (c *Controller) deleteRunning(ctx context.Context, jobs []*batchv1.Job) error {
	for _, job := range jobs {
		if err := c.releaseJob(ctx, job); err != nil {
			return err
		}
		if err := c.deleteJob(ctx, job, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		c.options.Log.InfoContext(ctx, "sweep Job deleted", slog.String("job", job.Name), slog.String("reason", "its file system is gone"))
	}
	return nil
}

// endUnschedulable has the cluster end a Job now, as it would at its deadline. A pod that has found its
// node a moment ago is killed like any that is late.
func (c *Controller) endUnschedulable(ctx context.Context, job *batchv1.Job) error {
	const deadline = int64(placingTime / time.Second)
	if job == nil || job.Spec.ActiveDeadlineSeconds != nil && *job.Spec.ActiveDeadlineSeconds <= deadline {
		return nil
	}
	if err := kubeobjects.Patch(ctx, c.client, job, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": deadline}}); err != nil {
		return err
	}
	c.options.Log.InfoContext(ctx, "mount Job ended", slog.String("job", job.Name), slog.String("reason", "it finds no node but those where the last ones failed"))
	return nil
}

// free deletes the pods of Jobs, and leaves the Jobs until they are released: they say that there
// is something to sweep.
func (c *Controller) free(ctx context.Context, jobs []*batchv1.Job) error {
	for _, job := range jobs {
		if err := c.deleteJob(ctx, job, metav1.DeletePropagationForeground); err != nil {
			return err
		}
		c.options.Log.InfoContext(ctx, "finished pod deleted", slog.String("job", job.Name), slog.String("reason", "it holds a root claim that is to go"))
	}
	return nil
}

func (c *Controller) deleteJob(ctx context.Context, job *batchv1.Job, policy metav1.DeletionPropagation) error {
	options := kubeobjects.OnlyThis(job)
	options.PropagationPolicy = &policy
	err := c.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options)
	if err != nil && !kubeobjects.IsGone(err) {
		return fmt.Errorf("deleting Job %s: %w", job.Name, err)
	}
	return nil
}

func (c *Controller) recordSweep(ctx context.Context, w state, s sweepPlan) error {
	if w.root != nil {
		if err := c.rememberSweep(ctx, w, s.next); err != nil {
			return err
		}
		if s.record.outcome.State != mountjobs.Succeeded && !s.record.outcome.GotOn() {
			c.tell.Warn(w.root, wellknown.EventSweepFailed, fmt.Sprintf("Job %s has not emptied the trash: %s", s.record.job.Name, s.record.outcome.Message))
		}
	}
	if s.record.outcome.State == mountjobs.Succeeded || s.record.outcome.State == mountjobs.Finished {
		c.metrics.swept(w.id, s.record.outcome.Swept)
		c.reportUnreadable(w, s.record)
	}
	return c.releaseJob(ctx, s.record.job)
}

// reportUnreadable says that something stays in the trash because no record says how long to keep it.
func (c *Controller) reportUnreadable(w state, s *sweepJob) {
	if unknown := s.outcome.Swept.Unknown; unknown > 0 && w.root != nil {
		c.tell.WarnOf(w.root, wellknown.EventSweepFailed, "unknown", fmt.Sprintf("%d directories stay in the trash: their records cannot be read, because they were cut off or are a newer version's; mend %s/@*, or remove the directories beside them by hand", unknown, wellknown.TrashDirectory))
	}
}

// rememberSweep writes down when the trash has something to remove next: on the root volume too,
// which stays when the root claim is made again.
func (c *Controller) rememberSweep(ctx context.Context, w state, next time.Time) error {
	record := noSweep
	if !next.IsZero() {
		record = next.UTC().Format(time.RFC3339)
	}
	err := c.recordNextSweep(ctx, w.root, record)
	// A volume of another server is about to be deleted, and the cluster may forbid us to change it.
	if v := w.rootVolume; v != nil && v.Spec.NFS != nil && v.Spec.NFS.Server == wellknown.LoopbackAddress {
		err = errors.Join(err, c.recordNextSweep(ctx, v, record))
	}
	return err
}

func (c *Controller) recordNextSweep(ctx context.Context, object metav1.Object, record string) error {
	if object.GetAnnotations()[wellknown.AnnotationNextSweep] == record {
		return nil
	}
	return kubeobjects.Patch(ctx, c.client, object, kubeobjects.Metadata("annotations", map[string]string{wellknown.AnnotationNextSweep: record}))
}

// claimOf is the claim that an operation is for, nil when it is gone.
func (c *Controller) claimOf(o operations.Operation) *corev1.PersistentVolumeClaim {
	return c.gatherer.Caches.Claim(types.UID(o.ClaimUID))
}

// reportProvisioning announces provisioning; a retry is no news.
func (c *Controller) reportProvisioning(job string, batch []operations.Operation) {
	for _, o := range batch {
		if o.Adopt || !o.AddsOwner() || volumes.AttemptOf(o) > 1 {
			continue
		}
		if claim := c.claimOf(o); claim != nil {
			c.tell.Say(claim, wellknown.EventProvisioning, fmt.Sprintf("Job %s makes directory %s", job, o.Path))
		}
	}
}
