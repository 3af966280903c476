package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Patch changes fields of an object, or of its subresource, by strategic merge. That the object is
// gone is no error.
func Patch(ctx context.Context, client kubernetes.Interface, object metav1.Object, fields map[string]any, subresources ...string) error {
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["uid"] = object.GetUID()
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	what, err := send(ctx, client, object, patch, subresources...)
	if err != nil && !IsGone(err) {
		return fmt.Errorf("changing %s: %w", what, err)
	}
	return nil
}

// Metadata returns the fields of a Patch of one field of an object's metadata.
func Metadata(field string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{field: value}}
}

// RemoveFinalizer names one finalizer, so that it neither brings back nor removes another one.
func RemoveFinalizer(ctx context.Context, client kubernetes.Interface, object metav1.Object, finalizer string) error {
	return Patch(ctx, client, object, map[string]any{"metadata": WithoutFinalizer(finalizer)})
}

// WithoutFinalizer returns the fields of metadata of a patch that removes one finalizer, as RemoveFinalizer does.
func WithoutFinalizer(finalizer string) map[string]any {
	return map[string]any{"$deleteFromPrimitiveList/finalizers": []string{finalizer}}
}

// send returns the name of the object for errors.
func send(ctx context.Context, client kubernetes.Interface, object metav1.Object, patch []byte, subresources ...string) (what string, err error) {
	const kind = types.StrategicMergePatchType
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		what = "volume " + o.Name
		_, err = client.CoreV1().PersistentVolumes().Patch(ctx, o.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	case *corev1.PersistentVolumeClaim:
		what = "claim " + o.Namespace + "/" + o.Name
		_, err = client.CoreV1().PersistentVolumeClaims(o.Namespace).Patch(ctx, o.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	case *corev1.Node:
		what = "node " + o.Name
		_, err = client.CoreV1().Nodes().Patch(ctx, o.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	case *batchv1.Job:
		what = "Job " + o.Name
		_, err = client.BatchV1().Jobs(o.Namespace).Patch(ctx, o.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	default:
		err = fmt.Errorf("no client patches %T", object)
	}
	return what, err
}

// PatchVolume writes what differs between a volume as it was observed and as it should be.
func PatchVolume(ctx context.Context, client kubernetes.Interface, is, want *corev1.PersistentVolume, subresources ...string) error {
	patch, err := StrategicMerge(is, want)
	if err != nil {
		return err
	}
	_, err = send(ctx, client, is, patch, subresources...)
	return err
}

// typed is an object of Kubernetes.
type typed[T any] interface {
	*T
	metav1.Object
	DeepCopy() *T
}

// StrategicMerge returns the patch from one object to another. It has the uid and the resourceVersion
// of the one that was observed, which the apiserver compares.
func StrategicMerge[T any, P typed[T]](is, want P) ([]byte, error) {
	before, after := P(is.DeepCopy()), P(want.DeepCopy())
	before.SetUID("")
	before.SetResourceVersion("")
	after.SetUID(is.GetUID())
	after.SetResourceVersion(is.GetResourceVersion())
	old, errOld := json.Marshal(before)
	next, errNext := json.Marshal(after)
	var kind T
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, next, kind)
	if err := errors.Join(errOld, errNext, err); err != nil {
		return nil, fmt.Errorf("comparing objects: %w", err)
	}
	return patch, nil
}

// OnlyThis returns the options that delete an object as it was observed.
func OnlyThis(object metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.GetUID()))}
}

// IsGone reports whether an error of a write means that the very object no longer exists: none of its name does,
// or one with another uid, or its namespace is being deleted. Any other conflict means that another write came
// first: the object exists, was not changed, and the write is to be retried.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) || isOfUID(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isOfUID reads the message of a conflict, because the apiserver gives nothing else to distinguish
// its kinds. No object's name can have these words: it has neither capitals nor spaces. To a
// patch for an object with another uid the apiserver answers that the uid cannot be changed.
func isOfUID(err error) bool {
	if apierrors.IsConflict(err) {
		return slices.ContainsFunc([]string{"UID in precondition:", "the UID in the precondition", "uid mismatch:"},
			func(words string) bool { return strings.Contains(err.Error(), words) })
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// CreateJob does nothing if there is a Job of that name: another leader's, or one that the cache has not
// observed yet.
func CreateJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job) (created bool, err error) {
	_, err = client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	return true, nil
}

// EndJob makes the cluster end a Job so long after its start, as at its deadline. It returns false if the Job's
// deadline is no later.
func EndJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job, after time.Duration) (ended bool, err error) {
	deadline := int64(after / time.Second)
	if job.Spec.ActiveDeadlineSeconds != nil && *job.Spec.ActiveDeadlineSeconds <= deadline {
		return false, nil
	}
	err = Patch(ctx, client, job, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": deadline}})
	return err == nil, err
}

// DeleteJob deletes a Job as it was observed, and its pods. That it is gone is no error.
func DeleteJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job, policy metav1.DeletionPropagation) error {
	options := OnlyThis(job)
	options.PropagationPolicy = &policy
	if err := client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options); err != nil && !IsGone(err) {
		return fmt.Errorf("deleting Job %s: %w", job.Name, err)
	}
	return nil
}

// ReadPair reads a volume and the claim that it is reserved for from the apiserver, nil where there is none: in the
// caches, a claim that was bound a moment ago could be missing. The volume is read before the claim: a claim that it
// names then exists when the claim is read, if it ever did and was not deleted.
func ReadPair(ctx context.Context, client kubernetes.Interface, volume, namespace, claim string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	reader := Reader{Client: client}
	v, err := reader.Volume(ctx, volume)
	if err != nil {
		return nil, nil, err
	}
	c, err := reader.Claim(ctx, namespace, claim)
	return v, c, err
}

// ApplyChange makes one change to a volume and a claim as they were read, and to no later ones of their names.
func ApplyChange(ctx context.Context, client kubernetes.Interface, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, change volumes.Change) (err error) {
	pvs, claims := client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims
	switch change.Action {
	case volumes.CreateVolume:
		_, err = pvs.Create(ctx, change.Volume, metav1.CreateOptions{})
	case volumes.UpdateVolume, volumes.UnprotectVolume:
		err = PatchVolume(ctx, client, volume, change.Volume)
	case volumes.DeleteVolume:
		err = pvs.Delete(ctx, volume.Name, OnlyThis(volume))
	case volumes.CreateClaim:
		_, err = claims(change.Claim.Namespace).Create(ctx, change.Claim, metav1.CreateOptions{})
	case volumes.UpdateClaim:
		var patch []byte
		if patch, err = StrategicMerge(claim, change.Claim); err == nil {
			_, err = claims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		}
	case volumes.DeleteClaim:
		err = claims(claim.Namespace).Delete(ctx, claim.Name, OnlyThis(claim))
	}
	return err
}

// IsRace reports whether a write failed because its object is not as it was read: the change must be planned again.
func IsRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// StatusWriter writes the status of cluster-scoped objects that no other program writes.
type StatusWriter struct {
	Client   dynamic.Interface
	Resource schema.GroupVersionResource
	Kind     string
	// Installation is the namespace in the label of the objects, where another installation may have objects of the
	// same names: those cause an error. "" for others.
	Installation string
}

// Write replaces the status of an object, and creates the object if there is none. The error is NotFound
// if the cluster does not have the object's definition.
func (w StatusWriter) Write(ctx context.Context, name string, status any, owners ...metav1.OwnerReference) error {
	patch, err := w.patchTo(status)
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", w.Kind, name, err)
	}
	if err = w.patch(ctx, name, patch); apierrors.IsNotFound(err) {
		if err = w.create(ctx, name, owners); err == nil || apierrors.IsAlreadyExists(err) {
			err = w.patch(ctx, name, patch)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", w.Kind, name, err)
	}
	return nil
}

// patchTo returns the patch to a status, which the apiserver refuses for an object of another installation.
func (w StatusWriter) patchTo(status any) ([]byte, error) {
	var steps []map[string]any
	if w.Installation != "" {
		label := strings.NewReplacer("~", "~0", "/", "~1").Replace(wellknown.LabelInstallation)
		steps = append(steps, map[string]any{"op": "test", "path": "/metadata/labels/" + label, "value": w.Installation})
	}
	return json.Marshal(append(steps, map[string]any{"op": "add", "path": "/status", "value": status}))
}

func (w StatusWriter) patch(ctx context.Context, name string, patch []byte) error {
	_, err := w.Client.Resource(w.Resource).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (w StatusWriter) create(ctx context.Context, name string, owners []metav1.OwnerReference) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(w.Resource.GroupVersion().WithKind(w.Kind))
	object.SetName(name)
	object.SetOwnerReferences(owners)
	if w.Installation != "" {
		object.SetLabels(map[string]string{wellknown.LabelInstallation: w.Installation})
	}
	_, err := w.Client.Resource(w.Resource).Create(ctx, object, metav1.CreateOptions{})
	return err
}
