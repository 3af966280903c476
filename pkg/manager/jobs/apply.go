package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// catchUp is how long a cache may be behind, most of the time.
const catchUp = 100 * time.Millisecond

// dropDelay is the wait after operations were dropped because the cache and the apiserver disagree.
const dropDelay = time.Second

// apply is the only writer of this loop.
func (c *Controller) apply(ctx context.Context, s state, p plan) (again time.Duration, err error) {
	if !p.Again.IsZero() {
		again = max(p.Again.Sub(s.Now), 0) + catchUp
	}
	var errs []error
	for _, change := range p.Steps {
		sooner, err := c.applyChange(ctx, s, change)
		if again == 0 || sooner != 0 && sooner < again {
			again = sooner
		}
		errs = append(errs, err)
	}
	return again, logging.Errors(errs...)
}

// applyChange says after how long to sync again; zero is never.
func (c *Controller) applyChange(ctx context.Context, s state, change any) (again time.Duration, err error) {
	switch change := change.(type) {
	case report:
		c.report(change)
	case createJob:
		return c.createJob(ctx, s, change)
	case giveBatch:
		return c.giveBatch(ctx, s, change)
	case reportProgress:
		return c.beginProgress(ctx, s, change.clone), nil
	case endWorker:
		c.options.Workers.End(change.job, change.why)
	case deletePods:
		if err = objects.DeleteJob(ctx, c.client, change.job, metav1.DeletePropagationForeground); err == nil {
			c.options.Log.InfoContext(ctx, "finished pod deleted", slog.String("job", change.job.Name), slog.String("reason", "RootClaimIsDeleted"))
		}
	case background.Create:
		err = c.createTask(ctx, s, change)
	case background.ReadLog:
		c.readLog(ctx, s, change.Job)
	case background.Record:
		return c.record(ctx, s, change)
	case background.Release:
		err = c.release(ctx, change)
	case background.End:
		err = c.endJob(ctx, change.Job)
	case background.Delete:
		err = c.deleteTask(ctx, change.Job)
	}
	return 0, err
}

func (c *Controller) release(ctx context.Context, change background.Release) error {
	c.logs.Forget(change.Job.UID)
	fields := objects.WithoutFinalizer(wellknown.FinalizerOutcome)
	if change.Unsuccessful { // In one write, or caches would forget the operations in between.
		fields["annotations"] = map[string]string{wellknown.AnnotationUnsuccessful: wellknown.ValueTrue}
	}
	return objects.Patch(ctx, c.client, change.Job, map[string]any{"metadata": fields})
}

// createJob creates the next Job, of the operations that are still right when they are confirmed live.
func (c *Controller) createJob(ctx context.Context, s state, next createJob) (again time.Duration, err error) {
	key, now := s.ID+"/"+string(next.kind), time.Now()
	if c.refused.IsInBackOffSinceUpdate(key, now) {
		return c.refused.Get(key), nil
	}
	doing := "reading the pods of the last one"
	defer func() { c.reportNotCreated(next.due, doing, err) }()
	if behind, err := c.isBehind(ctx, next.podless); behind || err != nil {
		return catchUp, err
	}
	doing = "reading what it is about"
	batch, err := c.batch(ctx, next.due)
	if err != nil || len(batch) == 0 {
		return dropDelay, err
	}
	doing = "building it"
	spec := c.spec(s, next.kind)
	spec.Operations = batch
	job, err := mountjobs.Build(spec)
	if err != nil {
		return 0, fmt.Errorf("file system %s: %w", s.ID, err)
	}
	doing = "creating it"
	created, err := objects.CreateJob(ctx, c.client, job)
	if err != nil {
		c.refused.GC()
		c.refused.Next(key, now)
	}
	if !created {
		return catchUp, err
	}
	c.refused.DeleteEntry(key)
	c.options.Log.InfoContext(ctx, "mount Job created",
		slog.String("job", job.Name), slog.String("fileSystem", s.ID), slog.Int("operations", len(batch)))
	c.metrics.created(next.kind)
	c.metrics.sent("job", len(batch))
	c.reportProvisioning(job.Name, batch)
	return 0, nil
}

// giveBatch records the next batch of a Job in the Job, from where its worker gets it: a next leader has to
// know what was begun. If the Job has changed since it was observed, the next sync plans again.
func (c *Controller) giveBatch(ctx context.Context, s state, next giveBatch) (again time.Duration, err error) {
	job := next.job.job
	if wait := c.paces.wait(s.ID, next.job.unused, len(next.due)); wait > 0 {
		c.paces.collect(s.ID, wait)
		return wait, nil
	}
	ops, err := c.batch(ctx, next.due)
	if err != nil || len(ops) == 0 {
		c.reportNotCreated(next.due, "reading what it is about", err)
		return dropDelay, err
	}
	batch := operations.Batch{Number: mountjobs.NewestBatch(job) + 1, Began: s.Now, Operations: ops}
	for _, pending := range next.due { // an attempt counts from when its claim began to wait
		batch.Began = mountjobs.Later(batch.Began, pending.Since)
	}
	metadata, err := mountjobs.AddBatch(job, batch, next.job.usedBatches, next.job.filledTrash)
	if err != nil {
		return 0, fmt.Errorf("file system %s: %w", s.ID, err)
	}
	err = objects.Patch(ctx, c.client, job, map[string]any{"metadata": metadata})
	if apierrors.IsConflict(err) {
		return catchUp, nil
	}
	if err != nil {
		c.reportNotCreated(next.due, "giving the operations to the worker of Job "+job.Name, err)
		return 0, err
	}
	c.paces.begin(s.ID)
	c.options.Log.InfoContext(ctx, "operations given to a worker", slog.String("job", job.Name), slog.String("fileSystem", s.ID),
		slog.Int("batch", batch.Number), slog.Int("operations", len(ops)))
	c.metrics.sent("worker", len(ops))
	return 0, nil
}

func (c *Controller) spec(s state, kind mountjobs.Kind) mountjobs.Spec {
	return mountjobs.Spec{
		Settings: c.options.Jobs, Kind: kind, FileSystemID: s.ID, Aliases: c.gatherer.Aliases[s.ID], Used: c.isUsed(s.ID),
		Number: mountjobs.NextNumber(kind, s.ID, s.named), AvoidNodes: s.nodesToAvoid(), NoNode: s.noNode, Leader: c.options.Workers.Leader(),
	}
}

// isUsed reports whether volumes are on a server of one's own. EFS has no other disk behind an id, and the original's
// volumes were there before the marker.
func (c *Controller) isUsed(id string) bool {
	return c.gatherer.Targets().Servers[id] && slices.ContainsFunc(c.gatherer.Caches.VolumesOnFileSystem(id), func(v *corev1.PersistentVolume) bool {
		return volumes.Read(v, c.gatherer.Provisioner).Kind == volumes.Provisioned
	})
}

// isBehind reads live whether podless Jobs have pods.
func (c *Controller) isBehind(ctx context.Context, podless []*batchv1.Job) (bool, error) {
	for _, job := range podless {
		pods, err := c.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil {
			return false, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
		}
		if slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return metav1.IsControlledBy(&pod, job) }) {
			return true, nil
		}
	}
	return false, nil
}

// endJob has the cluster end a Job now, as it would at its deadline. A pod that was scheduled a moment
// ago is killed like any that is late.
func (c *Controller) endJob(ctx context.Context, job *batchv1.Job) error {
	ended, err := objects.EndJob(ctx, c.client, job, schedulingTime)
	if ended {
		c.options.Log.InfoContext(ctx, "running Job ended", slog.String("job", job.Name))
	}
	return err
}

// claimOf is the claim that an operation is for, nil when it is deleted.
func (c *Controller) claimOf(o operations.Operation) *corev1.PersistentVolumeClaim {
	return c.gatherer.Caches.Claim(types.UID(cmp.Or(o.GivenTo, o.ClaimUID)))
}
