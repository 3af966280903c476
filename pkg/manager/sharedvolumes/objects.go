package sharedvolumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const labelManagedBy = "app.kubernetes.io/managed-by"

// pair returns the object's volume and claim. Pods may mount the claim, so it is kept.
func (s state) pair() volumes.Pair {
	volume, claim := newPair(s.object, s.port())
	return volumes.Pair{Volume: s.volume, Claim: s.claim, KeepClaim: true, WantVolume: volume, WantClaim: claim}
}

// newPair builds an object's volume and claim. The claim has no class: the provisioner of the cluster's
// default class would create another volume.
func newPair(o *v1alpha1.SharedVolume, port int) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	r := volumes.Reserved{
		VolumeMeta: metav1.ObjectMeta{
			Name:        volumeName(o),
			Labels:      map[string]string{labelManagedBy: wellknown.ManagerDeployment, wellknown.LabelFileSystemID: o.Spec.FileSystemID},
			Annotations: map[string]string{wellknown.AnnotationSharedVolume: nameOf(o), wellknown.AnnotationFileSystemID: o.Spec.FileSystemID},
		},
		ClaimMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: claimName(o),
			Labels:      map[string]string{labelManagedBy: wellknown.ManagerDeployment},
			Annotations: map[string]string{wellknown.AnnotationSharedVolume: nameOf(o)},
		},
		AccessMode: corev1.ReadWriteMany, MountOptions: strings.Split(wellknown.DefaultMountOptions, ","),
		Port: port, Path: o.Spec.Path,
	}
	if id := o.Spec.AccessPointID; id != "" {
		r.VolumeMeta.Annotations[wellknown.AnnotationAccessPointID], r.Path = id, "/" // EFS makes it the root of the tunnel
	}
	if o.Spec.ReadOnly {
		r.AccessMode = corev1.ReadOnlyMany
	}
	return r.Objects()
}
