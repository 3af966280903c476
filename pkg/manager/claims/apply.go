package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// apply writes the changes of a plan. It is the only writer of this loop.
func (c *Controller) apply(ctx context.Context, s decide.State, plan decide.Plan) error {
	var errs []error
	for _, change := range plan.Changes {
		errs = append(errs, c.applyChange(ctx, s, change))
	}
	return logging.Errors(errs...)
}

func (c *Controller) applyChange(ctx context.Context, s decide.State, change decide.Change) error {
	switch change := change.(type) {
	case decide.Warn:
		c.events.WarnBecause(change.Cause, change.Object, change.Reason, change.Topic, change.Message)
		return nil
	case decide.Inform:
		c.events.Normal(change.Object, change.Reason, change.Topic, change.Message)
		return nil
	case decide.Rediscover:
		c.options.Rediscover()
		return nil
	case decide.Annotate:
		err := objects.Patch(ctx, c.client, change.Object, objects.Metadata("annotations", change.Annotations))
		return c.reported(change.Object, change.Reason, err)
	case decide.MarkUsed:
		return c.markUsed(ctx, change.Volume, change.Jobs)
	case decide.CreateVolume:
		err := c.create(ctx, s, change)
		if s.Claim == nil {
			return err
		}
		return c.reported(s.Claim, wellknown.EventProvisioningFailed, err)
	case decide.CreatePoint:
		c.options.Points.Create(change.Point)
		return nil
	case decide.DeletePoint:
		c.options.Points.Delete(change.Point, change.ID)
		return nil
	case decide.AdoptVolume:
		return c.reported(change.Object, wellknown.EventVolumeEntryFailed, c.adopt(ctx, change.Object))
	case decide.DeleteVolume:
		return c.reported(change.Object, wellknown.EventVolumeFailedDelete, c.delete(ctx, s, change))
	case decide.AddFinalizer:
		err := objects.Patch(ctx, c.client, change.Object, objects.Metadata("finalizers", []string{wellknown.FinalizerVolume}))
		return c.reported(change.Object, wellknown.EventVolumeEntryFailed, err)
	case decide.RemoveFinalizer:
		return c.reported(change.Object, wellknown.EventVolumeFailedDelete, c.removeFinalizer(ctx, change.Object, change.MakerJobs))
	case decide.ExpandVolume:
		capacity := map[string]any{string(corev1.ResourceStorage): change.Size.String()}
		err := objects.Patch(ctx, c.client, change.Object, map[string]any{"spec": map[string]any{"capacity": capacity}})
		return c.reported(change.Claim, wellknown.EventVolumeResizeFailed, err)
	case decide.ExpandClaim:
		return c.reported(change.Claim, wellknown.EventVolumeResizeFailed, c.expandClaim(ctx, change))
	}
	return fmt.Errorf("a plan has a change that cannot be applied: %T", change)
}

var errBroken = errors.New("the operation's record cannot be used")

// reported writes an event, if it has a reason, for an error that no retry can mend: the apiserver refuses a request,
// by a missing right or a policy, or the request cannot be made. Races and outages pass by themselves.
func (c *Controller) reported(object events.Object, reason string, err error) error {
	if reason == "" {
		return err
	}
	answer, verdict := apierrors.APIStatus(nil), decide.Verdict{}
	refused := errors.Is(err, errBroken) || errors.As(err, &answer) && !apierrors.IsConflict(err)
	if refused {
		verdict = decide.Verdict{Cause: map[string]string{
			wellknown.EventProvisioningFailed: status.VolumeRefused, wellknown.EventVolumeFailedDelete: status.CleanupFailed,
			wellknown.EventVolumeEntryFailed: status.EntryFailed,
		}[reason], Message: events.Cut(err.Error())}
		c.events.WarnBecause(verdict.Cause, object, reason, "rejected", err.Error())
	}
	if reason == wellknown.EventProvisioningFailed && (refused || err == nil) {
		c.conditions.refuse(object.GetUID(), verdict)
	}
	return err
}

var errBehind = errors.New("the cache is behind the apiserver")

func (c *Controller) create(ctx context.Context, s decide.State, creation decide.CreateVolume) error {
	operation := creation.Operation
	volume, err := volumes.FromOperation(operation, s.Targets.Port(creation.FileSystemID), creation.Result.GID, s.Provisioner)
	if err != nil {
		return queue.Terminal(fmt.Errorf("%w: %w", errBroken, err))
	}
	if creation.AccessPointID != "" {
		volumes.OnPoint(volume, creation.AccessPointID, creation.PointPort, creation.IAM)
	}
	if operation.Size > 0 {
		metav1.SetMetaDataAnnotation(&volume.ObjectMeta, wellknown.AnnotationRecordedSize, strconv.FormatInt(operation.Size, 10))
	}
	if err := c.confirm(ctx, s, creation, volume); err != nil {
		return err
	}
	c.created.Set(volume.Name, nil, snapshotLife) // an answer may be lost
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating volume %s: %w", volume.Name, errBehind) // the next sync finds out whose it is
	}
	if err != nil {
		return fmt.Errorf("creating volume %s: %w", volume.Name, err)
	}
	c.options.Log.InfoContext(ctx, "volume created",
		slog.String("claim", operation.Namespace+"/"+operation.Claim), slog.String("volume", volume.Name),
		slog.String("fileSystem", creation.FileSystemID))
	if s.Claim != nil {
		c.metrics.provisioned.WithLabelValues(wayOf(creation.Batch)).Observe(secondsSince(s.Claim.CreationTimestamp.Time, s.Now))
		text := volumes.Created(volume, c.gatherer.Sharer(creation.FileSystemID, operation), creation.Result.Message)
		c.events.NormalAlways(s.Claim, wellknown.EventProvisioningSucceeded, text)
	}
	return nil
}

// confirm makes sure that the caches have claim and volume as they are. ReadPair reads the volume first: a claim that
// exists afterwards has not released it before, so a volume that does not exist was not created and deleted meanwhile.
func (c *Controller) confirm(ctx context.Context, s decide.State, creation decide.CreateVolume, volume *corev1.PersistentVolume) error {
	ref := volume.Spec.ClaimRef
	if now, ok := c.snapshotAfter(ctx, creation, volume.Name); ok && now.agrees(s, volume) {
		return nil
	}
	object, claim, err := objects.ReadPair(ctx, c.client, volume.Name, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	if object != nil {
		return fmt.Errorf("volume %s: %w", volume.Name, errBehind)
	}
	if exists := claim != nil && claim.UID == ref.UID; exists != (s.Claim != nil) {
		return fmt.Errorf("claim %s/%s: %w", ref.Namespace, ref.Name, errBehind)
	}
	return nil
}

// markUsed annotates Jobs: no volume comes of what they did for this one.
func (c *Controller) markUsed(ctx context.Context, volume string, jobs []string) error {
	for _, job := range c.gatherer.Caches.JobsOfVolume(volume) {
		if !slices.Contains(jobs, job.Name) {
			continue
		}
		mark := map[string]string{wellknown.AnnotationUsed(volume): strconv.Itoa(mountjobs.NewestBatch(job))}
		if err := c.marks.add(ctx, job, mark); err != nil {
			return err
		}
	}
	return nil
}

// delete removes our finalizer last: a writer that comes between finds a volume that is being deleted.
func (c *Controller) delete(ctx context.Context, s decide.State, change decide.DeleteVolume) error {
	object := change.Object
	if _, deleted := c.deleted.Get(object.UID); deleted {
		return nil // the cache has not observed it yet
	}
	if object.DeletionTimestamp == nil {
		err := c.client.CoreV1().PersistentVolumes().Delete(ctx, object.Name, objects.OnlyThis(object))
		if objects.IsGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting volume %s: %w", object.Name, err)
		}
	}
	if err := c.removeFinalizer(ctx, object, change.MakerJobs); err != nil {
		return err
	}
	c.deleted.Set(object.UID, nil, deletedMemory)
	c.metrics.deleted.Observe(secondsSince(releasedAt(object), s.Now))
	c.options.Log.InfoContext(ctx, "volume deleted",
		slog.String("volume", object.Name), slog.String("fileSystem", object.Annotations[wellknown.AnnotationFileSystemID]))
	return nil
}

// deletedMemory is longer than a cache is ever behind while its watch works.
const deletedMemory = 10 * time.Second

func releasedAt(object *corev1.PersistentVolume) time.Time {
	if at := object.Status.LastPhaseTransitionTime; at != nil {
		return at.Time
	}
	if object.DeletionTimestamp != nil {
		return object.DeletionTimestamp.Time
	}
	return object.CreationTimestamp.Time
}

// removeFinalizer lets the volume be deleted without us, once no Job is left from which it would be created again.
func (c *Controller) removeFinalizer(ctx context.Context, object *corev1.PersistentVolume, makerJobs []string) error {
	if err := c.markUsed(ctx, object.Name, makerJobs); err != nil {
		return err
	}
	return objects.RemoveFinalizer(ctx, c.client, object, wellknown.FinalizerVolume)
}

// adopt conflicts if the object was changed since; then the next sync decides again.
func (c *Controller) adopt(ctx context.Context, object *corev1.PersistentVolume) error {
	changed := object.DeepCopy()
	volumes.Adopt(changed)
	err := objects.PatchVolume(ctx, c.client, object, changed)
	if objects.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopting volume %s: %w", object.Name, err)
	}
	c.events.NormalAlways(object, wellknown.EventVolumeAdopted, "the volume of the original provisioner is now managed like all others")
	return nil
}

func (c *Controller) expandClaim(ctx context.Context, change decide.ExpandClaim) error {
	status := decide.ExpandedStatus(change.Claim, change.Size)
	if err := objects.Patch(ctx, c.client, change.Claim, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	c.events.Normal(change.Claim, wellknown.EventVolumeResizeSuccessful, "size",
		fmt.Sprintf("volume %s has %s now; no pod has to restart", change.Object.Name, &change.Size))
	return nil
}

// marksDelay collects marks of one Job: each write of it sends all of its operations to everybody who watches Jobs.
const marksDelay = 100 * time.Millisecond

// marks collects annotations of Jobs, to write those of one Job at once.
type marks struct {
	client kubernetes.Interface

	mu      sync.Mutex
	waiting map[types.UID]*marksOfJob // guarded by mu
}

type marksOfJob struct {
	annotations map[string]string // guarded by marks.mu, until it is written
	written     chan struct{}
	err         error // once written is closed
}

// add returns when the annotations were written.
func (m *marks) add(ctx context.Context, job *batchv1.Job, annotations map[string]string) error {
	m.mu.Lock()
	of, others := m.waiting[job.UID]
	if !others {
		of = &marksOfJob{annotations: map[string]string{}, written: make(chan struct{})}
		m.waiting[job.UID] = of
		go m.writeSoon(ctx, job, of)
	}
	maps.Copy(of.annotations, annotations)
	m.mu.Unlock()
	<-of.written
	return of.err
}

// writeSoon also writes when the context ends meanwhile: the request has an error then.
func (m *marks) writeSoon(ctx context.Context, job *batchv1.Job, of *marksOfJob) {
	defer close(of.written)
	select {
	case <-ctx.Done():
	case <-time.After(marksDelay):
	}
	m.mu.Lock()
	delete(m.waiting, job.UID)
	m.mu.Unlock()
	of.err = objects.Patch(ctx, m.client, job, objects.Metadata("annotations", of.annotations))
}
