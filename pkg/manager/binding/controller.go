// Package binding is the control loop that binds claims to the volumes made for them when the cluster's binder, the
// controller of volumes in kube-controller-manager, is late. It writes what the binder would write.
//
// The binder marks a claim Lost that is bound to a volume which its worker has not stored, and it observes claims and
// volumes by two independent watches. So the loop has the binder prove that it has stored the volumes: it creates
// another volume, the question, and waits until the binder has written the question's phase, the answer. The binder's
// watch delivers volumes in the order of their versions, its queue is first in, first out with one worker, and the
// queue cannot have had a question before, as each has a new name. Only a new list or a resync of the binder's cache
// enqueues volumes in any order, and it has enqueued all of them before it can enqueue a second question, which is
// created after the answer to the first. So two answers are proof.
package binding

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options are the settings of the loop.
type Options struct {
	Namespace   string // that questions are reserved for
	Provisioner string
	Now         func() time.Time // the apiserver's time
	Metrics     prometheus.Registerer
	Log         *slog.Logger
}

// Controller is the loop.
type Controller struct {
	options  Options
	client   kubernetes.Interface
	caches   *caches.Caches
	finished prometheus.Counter
}

const (
	// grace is the time that the binder has for a volume. A binder that is not throttled needs less.
	grace = 2 * time.Second
	// interval is the time between two rounds: each costs the binder as many requests as it has questions.
	interval  = time.Second
	questions = 2
	// patience is the time after which a question is replaced. It is useless only if another client has removed it: an
	// answer waits for the requests of all claims that were created before, at 20 a second.
	patience = 30 * time.Minute
	// deletion bounds the deletion of a question, for which the end of the manager waits.
	deletion = 30 * time.Second
	poll     = 100 * time.Millisecond // of the cache
	// batch limits the volumes of a round, so that those which are created meanwhile need not wait for long.
	batch   = 500
	workers = 8
)

// New makes the loop.
func New(client kubernetes.Interface, all *caches.Caches, o Options) *Controller {
	return &Controller{options: o, client: client, caches: all, finished: promauto.With(o.Metrics).NewCounter(prometheus.CounterOpts{
		Name: "efs_stunnel_manager_bindings_finished_total",
		Help: "Claims that the manager has bound with --finish-binding, because the cluster's binder was late.",
	})}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	for _, volume := range caches.All[*corev1.PersistentVolume](c.caches.Volumes) { // of an earlier leader
		if ref := volume.Spec.ClaimRef; strings.HasPrefix(volume.Name, wellknown.QuestionPrefix) && ref != nil && ref.Namespace == c.options.Namespace {
			c.remove(ctx, volume)
		}
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			c.options.Log.WarnContext(ctx, "claims not bound", "err", err)
		}
	}, interval)
	return nil
}

// round binds the claims of late volumes. What fails, the next round or the binder does.
func (c *Controller) round(ctx context.Context) error {
	late := c.late(c.options.Now())
	if len(late) == 0 {
		return nil
	}
	for range questions {
		if err := c.ask(ctx); err != nil {
			return fmt.Errorf("asking kube-controller-manager what it has observed: %w", err)
		}
	}
	var group errgroup.Group
	group.SetLimit(workers)
	for _, volume := range late {
		group.Go(func() error { return c.finish(ctx, volume) })
	}
	return group.Wait()
}

// late returns volumes that the binder has not bound within the grace.
func (c *Controller) late(now time.Time) (late []*corev1.PersistentVolume) {
	for _, volume := range c.caches.UnboundVolumes(c.options.Provisioner) {
		if len(late) < batch && now.Sub(volume.CreationTimestamp.Time) > grace && c.claimFor(volume) != nil {
			late = append(late, volume)
		}
	}
	return late
}

// claimFor returns the claim that is to be bound to a volume, nil if there is none.
func (c *Controller) claimFor(volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	claim := c.caches.ClaimNamed(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)
	if claim == nil || !fits(volume, claim) {
		return nil
	}
	return claim
}

// ask creates a question and waits for the answer. The claim that a question is reserved for never exists.
func (c *Controller) ask(ctx context.Context) error {
	name := wellknown.QuestionPrefix + string(uuid.NewUUID())
	question, _ := volumes.Reserved{
		VolumeMeta: metav1.ObjectMeta{Name: name}, ClaimMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: name},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Path: "/",
	}.Objects()
	question, err := c.client.CoreV1().PersistentVolumes().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer c.remove(ctx, question)
	return wait.PollUntilContextTimeout(ctx, poll, patience, false, func(context.Context) (bool, error) {
		now := c.caches.Volume(name)
		return now != nil && now.Status.Phase == corev1.VolumeAvailable, nil
	})
}

// remove deletes a question, also when the manager ends. The next leader deletes what this one cannot.
func (c *Controller) remove(ctx context.Context, question *corev1.PersistentVolume) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletion)
	defer cancel()
	err := c.client.CoreV1().PersistentVolumes().Delete(ctx, question.Name, objects.OnlyThis(question))
	if err != nil && !apierrors.IsNotFound(err) {
		c.options.Log.WarnContext(ctx, "volume not deleted", "volume", question.Name, "err", err)
	}
}

// finish binds a volume that the binder has stored, unless it has been changed since. Nothing is repeated: once one
// of the objects is written, the binder does the rest.
func (c *Controller) finish(ctx context.Context, stored *corev1.PersistentVolume) error {
	volume := c.caches.Volume(stored.Name)
	if volume == nil || volume.UID != stored.UID || volume.Status.Phase != corev1.VolumePending {
		return nil
	}
	claim := c.claimFor(volume)
	if claim == nil {
		return nil
	}
	err := c.bind(ctx, volume, claim)
	if apierrors.IsConflict(err) || objects.IsGone(err) { // the binder or the claim's owner was faster
		return nil
	}
	if err != nil {
		return fmt.Errorf("binding claim %s/%s to volume %s: %w", claim.Namespace, claim.Name, volume.Name, err)
	}
	c.finished.Inc()
	c.options.Log.InfoContext(ctx, "claim bound", "claim", claim.Namespace+"/"+claim.Name, "volume", volume.Name)
	return nil
}

// fits reports whether the binder would bind a claim to a volume that was made for it.
func fits(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	attributes := claim.Spec.VolumeAttributesClassName
	return claim.UID == volume.Spec.ClaimRef.UID && volume.Name == volumes.VolumeName(claim.UID) &&
		claim.Spec.VolumeName == "" && claim.Status.Phase == corev1.ClaimPending &&
		claim.DeletionTimestamp == nil && volume.DeletionTimestamp == nil &&
		volumes.ClassName(claim) == volume.Spec.StorageClassName && (attributes == nil || *attributes == "") &&
		volume.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) >= 0
}

// bind makes the three writes of the binder, in its order. Each is for an object as it was observed. The volume's name
// and the annotation that a binding is complete are one write: the scheduler refuses pods whose claim has only the name.
func (c *Controller) bind(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	bound := volume.DeepCopy()
	bound.Status.Phase = corev1.VolumeBound
	if err := objects.PatchVolume(ctx, c.client, volume, bound, "status"); err != nil {
		return err
	}
	named := claim.DeepCopy()
	named.Spec.VolumeName = volume.Name
	for _, annotation := range []string{wellknown.AnnotationBindCompleted, wellknown.AnnotationBoundByController} {
		metav1.SetMetaDataAnnotation(&named.ObjectMeta, annotation, "yes")
	}
	named, err := c.patch(ctx, claim, named)
	if err != nil {
		return err
	}
	done := named.DeepCopy()
	done.Status.Phase, done.Status.AccessModes, done.Status.Capacity = corev1.ClaimBound, volume.Spec.AccessModes, volume.Spec.Capacity
	_, err = c.patch(ctx, named, done, "status")
	return err
}

func (c *Controller) patch(ctx context.Context, is, want *corev1.PersistentVolumeClaim, subresources ...string) (*corev1.PersistentVolumeClaim, error) {
	patch, err := objects.StrategicMerge(is, want)
	if err != nil {
		return nil, err
	}
	claims := c.client.CoreV1().PersistentVolumeClaims(is.Namespace)
	return claims.Patch(ctx, is.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
}
