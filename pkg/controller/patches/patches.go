// Package patches changes and deletes the very objects that were looked at, and no later ones of
// their names. A patch leaves alone what this program's client is too old to know, which an update
// would drop.
package patches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// OnlyThis are the options that delete an object as it was seen.
func OnlyThis(object metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.GetUID()))}
}

// IsGone says that an error of a write means that the very object is not there any more: none of
// its name is, or one with another uid. Any other conflict is that of a write which lost against
// others: the object is there, was not changed, and the write is to be tried again.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) || isOfUID(err)
}

// isOfUID reads the message of a conflict, because the apiserver gives nothing else to tell its
// kinds apart. No object's name can have these words: it has neither capitals nor spaces. To a
// patch for an object with another uid the apiserver says that the uid cannot be changed.
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

// Volume writes what differs between a volume as it was seen and as it should be.
func Volume(ctx context.Context, client kubernetes.Interface, is, want *corev1.PersistentVolume) error {
	patch, err := StrategicMerge(is, want)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().PersistentVolumes().Patch(ctx, is.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Meta is the patch that changes one field of an object's metadata, whichever way it is merged.
func Meta(object metav1.Object, field string, value any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.GetUID(), field: value}})
	if err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	return patch, nil
}

// JobMeta changes one field of a Job's metadata, by strategic merge. A Job that is gone is left be.
func JobMeta(ctx context.Context, client kubernetes.Interface, job *batchv1.Job, field string, value any) error {
	patch, err := Meta(job, field, value)
	if err != nil {
		return err
	}
	_, err = client.BatchV1().Jobs(job.Namespace).Patch(ctx, job.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !IsGone(err) {
		return fmt.Errorf("changing %s of Job %s: %w", strings.TrimPrefix(field, "$deleteFromPrimitiveList/"), job.Name, err)
	}
	return nil
}

// object is a pointer to one of Kubernetes' own objects.
type object[T any] interface {
	*T
	metav1.Object
	DeepCopy() *T
}

// StrategicMerge is the patch from one object to another. It has the uid and the resourceVersion
// of the one that was seen, which the apiserver compares.
func StrategicMerge[T any, P object[T]](is, want P) ([]byte, error) {
	before := P(is.DeepCopy())
	before.SetUID("")
	before.SetResourceVersion("")
	old, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("writing the object as it is: %w", err)
	}
	after := P(want.DeepCopy())
	after.SetUID(is.GetUID())
	after.SetResourceVersion(is.GetResourceVersion())
	next, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("writing the object as it should be: %w", err)
	}
	var kind T
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, next, kind)
	if err != nil {
		return nil, fmt.Errorf("comparing objects: %w", err)
	}
	return patch, nil
}
