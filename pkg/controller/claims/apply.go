package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// apply is the only writer of this loop.
func (c *Controller) apply(ctx context.Context, s lifecycle.State, plan lifecycle.Plan) error {
	err := c.applyToClaim(ctx, s, plan.Claim)
	for _, v := range plan.Volumes {
		err = errors.Join(err, c.applyToVolume(ctx, s, v))
	}
	return err
}

func (c *Controller) applyToClaim(ctx context.Context, s lifecycle.State, plan lifecycle.ClaimPlan) error {
	if plan.Rediscover {
		c.options.Rediscover()
	}
	if err := c.markUsed(ctx, volumes.VolumeName(s.UID), plan.Spent); err != nil {
		return err
	}
	if plan.Create != nil {
		err := c.create(ctx, s, *plan.Create)
		if s.Claim != nil {
			c.tellRejected(s.Claim, wellknown.EventProvisioningFailed, err)
		}
		return err
	}
	if s.Claim == nil {
		return nil
	}
	c.tellClaim(s.Claim, plan)
	if plan.Reschedule != "" {
		return c.reschedule(ctx, s.Claim, plan.Reschedule)
	}
	return c.markClaim(ctx, s.Claim, plan)
}

// errBroken is told when a volume cannot be built of what a Job recorded.
var errBroken = errors.New("the operation's record cannot be used")

// tellRejected says what no retry can bring about: the apiserver refuses a request, because of a
// missing right or a policy, or the request cannot be made. Races and outages pass by themselves.
func (c *Controller) tellRejected(object tell.Object, reason string, err error) {
	answer := apierrors.APIStatus(nil)
	if errors.Is(err, errBroken) || errors.As(err, &answer) && !apierrors.IsConflict(err) {
		c.tell.WarnOf(object, reason, "rejected", err.Error())
	}
}

// tellClaim says what people can do something about.
func (c *Controller) tellClaim(claim *corev1.PersistentVolumeClaim, plan lifecycle.ClaimPlan) {
	switch {
	case plan.Conflict != "":
		c.tell.WarnOf(claim, wellknown.EventProvisioningFailed, "conflict", plan.Conflict)
	case plan.Wait != "":
		c.tell.WarnOf(claim, wellknown.EventProvisioningFailed, "wait", "waiting: "+plan.Wait)
	case plan.Failed != nil && plan.GivenUp == "":
		c.tell.WarnOf(claim, wellknown.EventProvisioningFailed, plan.Failed.Job, failedText(plan))
	}
}

func failedText(plan lifecycle.ClaimPlan) string {
	text := fmt.Sprintf("Job %s could not make the directory: %s", plan.Failed.Job, plan.Failed.Why())
	if w := plan.Pending; w != nil && !w.Due.IsZero() {
		text += fmt.Sprintf(" (attempt %d; next at %s)", volumes.AttemptOf(plan.Failed.Operation), w.Due.UTC().Format("15:04:05 MST"))
	}
	return text
}

// markClaim makes the annotations say what the plan does; an event goes with a new refusal only.
func (c *Controller) markClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, plan lifecycle.ClaimPlan) error {
	want := map[string]string{wellknown.AnnotationRejected: "", wellknown.AnnotationRejectReason: plan.Refusal, wellknown.AnnotationGivenUp: plan.GivenUp}
	if plan.Refusal != "" {
		want[wellknown.AnnotationRejected] = wellknown.ValueTrue
	}
	if plan.KeepsGivenUp {
		want[wellknown.AnnotationGivenUp] = claim.Annotations[wellknown.AnnotationGivenUp]
	}
	changes := map[string]any{}
	for key, value := range want {
		switch have, ok := claim.Annotations[key]; {
		case value == "" && ok:
			changes[key] = nil
		case value != "" && have != value:
			changes[key] = value
		}
	}
	if plan.Refusal != "" {
		c.tell.WarnOf(claim, wellknown.EventProvisioningFailed, "refusal", plan.Refusal)
	}
	if len(changes) == 0 {
		return nil
	}
	return c.annotateClaim(ctx, claim, changes)
}

func (c *Controller) reschedule(ctx context.Context, claim *corev1.PersistentVolumeClaim, why string) error {
	c.tell.WarnOf(claim, wellknown.EventProvisioningFailed, "node", why+": asking the scheduler for another node")
	return c.annotateClaim(ctx, claim, map[string]any{wellknown.AnnotationSelectedNode: nil})
}

func (c *Controller) annotateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, annotations map[string]any) error {
	return kubeobjects.Patch(ctx, c.client, claim, kubeobjects.Metadata("annotations", annotations))
}

// errBehind is told when the caches have not seen yet what the apiserver has.
var errBehind = errors.New("the cache is behind the apiserver")

// create makes the volume of a directory that a mount Job has made.
func (c *Controller) create(ctx context.Context, s lifecycle.State, creation lifecycle.Creation) error {
	operation := creation.Operation
	volume, err := volumes.FromOperation(operation, s.Targets.Port(creation.FileSystemID), creation.GID, s.Provisioner)
	if err != nil {
		return queue.Terminal(fmt.Errorf("%w: %w", errBroken, err))
	}
	if err := c.confirm(ctx, s, creation, volume); err != nil {
		return err
	}
	c.made.Set(volume.Name, nil, snapshotLife) // an answer may be lost
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating volume %s: %w", volume.Name, errBehind) // the next look says whose it is
	}
	if err != nil {
		return fmt.Errorf("creating volume %s: %w", volume.Name, err)
	}
	c.options.Log.InfoContext(ctx, "volume created",
		slog.String("claim", operation.Namespace+"/"+operation.Claim), slog.String("volume", volume.Name),
		slog.String("fileSystem", creation.FileSystemID))
	if s.Claim != nil {
		c.metrics.provisioned.Observe(secondsSince(s.Claim.CreationTimestamp.Time, s.Now))
		c.tell.Say(s.Claim, wellknown.EventProvisioningSucceeded, fmt.Sprintf("created volume %s: directory %s of file system %s", volume.Name, operation.Path, creation.FileSystemID))
	}
	return nil
}

// confirm makes sure that the caches showed claim and volume as they are. The volume is read first: a
// claim that is there afterwards has not released it before, so a volume that is not there was not
// made and deleted meanwhile.
func (c *Controller) confirm(ctx context.Context, s lifecycle.State, creation lifecycle.Creation, volume *corev1.PersistentVolume) error {
	ref := volume.Spec.ClaimRef
	if now, ok := c.snapshotAfter(ctx, creation, volume.Name); ok && now.agrees(s, volume) {
		return nil
	}
	object, err := c.live.Volume(ctx, volume.Name)
	if err != nil {
		return err
	}
	if object != nil {
		return fmt.Errorf("volume %s: %w", volume.Name, errBehind)
	}
	claim, err := c.live.Claim(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	if exists := claim != nil && claim.UID == ref.UID; exists != (s.Claim != nil) {
		return fmt.Errorf("claim %s/%s: %w", ref.Namespace, ref.Name, errBehind)
	}
	return nil
}
