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
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// executor is the only writer.
type executor struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	tell    *tell.Teller
	log     *slog.Logger
	metrics *metrics
}

// apply writes status and step of a plan that was decided from live objects. The status comes
// first, so that nothing is done of which nobody could read.
func (e executor) apply(ctx context.Context, s state, p plan) error {
	object, err := e.writeStatus(ctx, s.object, p)
	if err != nil || p.step == "" {
		return err
	}
	s.object = object
	if err := e.take(ctx, s, p); err != nil {
		if !isRace(err) {
			e.tell.WarnOf(s.object, wellknown.EventProvisioningFailed, string(p.step), fmt.Sprintf("cannot %s: %v", p.step, err))
		}
		return fmt.Errorf("%s of SharedVolume %s: %w", p.step, nameOf(s.object), err)
	}
	e.log.InfoContext(ctx, "shared volume step taken", slog.String("sharedVolume", nameOf(s.object)), slog.String("reason", string(p.step)))
	if p.repair != "" {
		e.metrics.repairs.Inc()
		e.tell.Warn(s.object, wellknown.EventSharedVolumeRepaired, fmt.Sprintf("%s: %s", p.step, p.repair))
	}
	return nil
}

// isRace says that the world is not what it was a moment ago: look again.
func isRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) // its objects are deleted, too
}

// writeStatus writes what changed, and gives the object as it is then.
func (e executor) writeStatus(ctx context.Context, is *v1alpha1.SharedVolume, p plan) (*v1alpha1.SharedVolume, error) {
	if p.warning != "" {
		e.tell.WarnOf(is, wellknown.EventProvisioningFailed, "state", p.warning)
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
	written, err := e.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(is.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the status of SharedVolume %s: %w", nameOf(is), err)
	}
	if p.status.Phase == v1alpha1.Ready && is.Status.Phase != v1alpha1.Ready {
		e.tell.Say(is, wellknown.EventProvisioningSucceeded, fmt.Sprintf("pods can use claim %s", claimName(is)))
	}
	return v1alpha1.FromUnstructured(written)
}

func (e executor) take(ctx context.Context, s state, p plan) error {
	pvs, claims := e.client.CoreV1().PersistentVolumes(), e.client.CoreV1().PersistentVolumeClaims(s.object.Namespace)
	var err error
	switch p.step {
	case addFinalizer:
		err = e.patchFinalizers(ctx, s.object, append(slices.Clone(s.object.Finalizers), wellknown.FinalizerSharedVolume))
	case removeFinalizer:
		err = e.patchFinalizers(ctx, s.object, without(s.object.Finalizers, wellknown.FinalizerSharedVolume))
	case createVolume:
		_, err = pvs.Create(ctx, p.volume, metav1.CreateOptions{})
	case updateVolume:
		err = kubeobjects.PatchVolume(ctx, e.client, s.volume, p.volume)
	case letVolumeGo:
		free := s.volume.DeepCopy()
		free.Finalizers = without(free.Finalizers, wellknown.FinalizerVolumeProtection)
		err = kubeobjects.PatchVolume(ctx, e.client, s.volume, free)
	case deleteVolume:
		err = pvs.Delete(ctx, s.volume.Name, kubeobjects.OnlyThis(s.volume))
	case createClaim:
		_, err = claims.Create(ctx, p.claim, metav1.CreateOptions{})
	case annotateClaim:
		err = e.patchClaim(ctx, s.claim, p.claim)
	case deleteClaim:
		err = claims.Delete(ctx, s.claim.Name, kubeobjects.OnlyThis(s.claim))
	}
	return err
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == one })
}

func (e executor) patchClaim(ctx context.Context, is, want *corev1.PersistentVolumeClaim) error {
	patch, err := kubeobjects.StrategicMerge(is, want)
	if err != nil {
		return err
	}
	_, err = e.client.CoreV1().PersistentVolumeClaims(is.Namespace).Patch(ctx, is.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// patchFinalizers replaces the list, which custom resources know no other way to change. The
// resourceVersion keeps it from undoing what somebody else did to it.
func (e executor) patchFinalizers(ctx context.Context, object *v1alpha1.SharedVolume, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.UID, "resourceVersion": object.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	_, err = e.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
