// Package pairs reads and writes a volume and the claim that it is reserved for, for the loops that
// own some of them. What is to be written, volumes.Pair decides.
package pairs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Get reads both from the apiserver, nil where there is none: in the caches, a claim that was bound a
// moment ago could be missing. The volume is read before the claim: a claim that it names then exists
// when the claim is read, if it ever did and was not deleted.
func Get(ctx context.Context, client kubernetes.Interface, volume, namespace, claim string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	reader := objects.Reader{Client: client}
	v, err := reader.Volume(ctx, volume)
	if err != nil {
		return nil, nil, err
	}
	c, err := reader.Claim(ctx, namespace, claim)
	return v, c, err
}

// Apply makes one change to a volume and a claim as they were read, and to no later ones of their names.
func Apply(ctx context.Context, client kubernetes.Interface, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, change volumes.Change) (err error) {
	pvs, claims := client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims
	switch change.Action {
	case volumes.CreateVolume:
		_, err = pvs.Create(ctx, change.Volume, metav1.CreateOptions{})
	case volumes.UpdateVolume, volumes.UnprotectVolume:
		err = objects.PatchVolume(ctx, client, volume, change.Volume)
	case volumes.DeleteVolume:
		err = pvs.Delete(ctx, volume.Name, objects.OnlyThis(volume))
	case volumes.CreateClaim:
		_, err = claims(change.Claim.Namespace).Create(ctx, change.Claim, metav1.CreateOptions{})
	case volumes.UpdateClaim:
		var patch []byte
		if patch, err = objects.StrategicMerge(claim, change.Claim); err == nil {
			_, err = claims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		}
	case volumes.DeleteClaim:
		err = claims(claim.Namespace).Delete(ctx, claim.Name, objects.OnlyThis(claim))
	}
	return err
}

// IsRace reports whether a write failed because its object is not as it was read, so that the change must be
// planned again.
func IsRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
