package sharedvolumes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// apply reads the objects from the apiserver, plans from them and writes. The status is written
// first, so that no change is made that users cannot read about.
func (c *Controller) apply(ctx context.Context, s state) error {
	s, err := c.readLive(ctx, s)
	if err != nil || s.object == nil {
		return err
	}
	p := planFor(s)
	if s.object, err = c.writeStatus(ctx, s.object, p); err != nil {
		return err
	}
	for _, change := range p.changes {
		if err := c.applyChange(ctx, s, change); err != nil {
			return err
		}
	}
	return nil
}

// readLive observes as observe does, from the apiserver.
func (c *Controller) readLive(ctx context.Context, s state) (state, error) {
	object, err := c.resource(s.object.Namespace).Get(ctx, s.object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.object = nil
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading SharedVolume %s: %w", nameOf(s.object), err)
	}
	if s.object, err = v1alpha1.FromUnstructured(object); err != nil {
		return s, err
	}
	s.volume, s.claim, err = objects.ReadPair(ctx, c.client, volumeName(s.object), s.object.Namespace, claimName(s.object))
	return s, err
}

func (c *Controller) resource(namespace string) dynamic.ResourceInterface {
	return c.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(namespace)
}

// isRace also returns true in a namespace that is being deleted: the SharedVolume is deleted with it.
func isRace(err error) bool {
	return objects.IsRace(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// writeStatus writes what changed, and returns the object as it is then.
func (c *Controller) writeStatus(ctx context.Context, is *v1alpha1.SharedVolume, p plan) (*v1alpha1.SharedVolume, error) {
	if p.warning != "" {
		c.events.Warn(is, wellknown.EventProvisioningFailed, "state", p.warning)
	}
	if equality.Semantic.DeepEqual(is.Status, p.status) {
		return is, nil
	}
	next := is.DeepCopy()
	next.Status = p.status
	object, err := next.ToUnstructured()
	if err != nil {
		return nil, err
	}
	written, err := c.resource(is.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the status of SharedVolume %s: %w", nameOf(is), err)
	}
	if p.status.Phase == v1alpha1.Ready && is.Status.Phase != v1alpha1.Ready {
		c.events.NormalAlways(is, wellknown.EventProvisioningSucceeded, fmt.Sprintf("pods can use claim %s", claimName(is)))
	}
	return v1alpha1.FromUnstructured(written)
}

func (c *Controller) applyChange(ctx context.Context, s state, change volumes.Change) error {
	if err := c.write(ctx, s, change); err != nil {
		if !isRace(err) {
			c.events.Warn(s.object, wellknown.EventProvisioningFailed, string(change.Action), fmt.Sprintf("cannot %s: %v", change.Action, err))
		}
		return fmt.Errorf("%s of SharedVolume %s: %w", change.Action, nameOf(s.object), err)
	}
	c.options.Log.InfoContext(ctx, "shared volume changed", slog.String("sharedVolume", nameOf(s.object)), slog.String("action", string(change.Action)))
	if change.Why != "" {
		c.metrics.repairs.Inc()
		c.events.Warn(s.object, wellknown.EventSharedVolumeRepaired, "", change.String())
	}
	return nil
}

func (c *Controller) write(ctx context.Context, s state, change volumes.Change) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.object.Finalizers), func(f string) bool { return f == wellknown.FinalizerSharedVolume })
	switch change.Action {
	case addFinalizer:
		return c.patchFinalizers(ctx, s.object, append(finalizers, wellknown.FinalizerSharedVolume))
	case removeFinalizer:
		return c.patchFinalizers(ctx, s.object, finalizers)
	}
	return objects.ApplyChange(ctx, c.client, s.volume, s.claim, change)
}

// patchFinalizers replaces the list, because a custom resource's list cannot be merged. The
// resourceVersion keeps the patch from undoing another client's change to it.
func (c *Controller) patchFinalizers(ctx context.Context, object *v1alpha1.SharedVolume, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.UID, "resourceVersion": object.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	_, err = c.resource(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
