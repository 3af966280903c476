package volumes

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Reserved describes a retained volume and the claim that it is reserved for.
type Reserved struct {
	VolumeMeta, ClaimMeta metav1.ObjectMeta
	Class                 string
	AccessMode            corev1.PersistentVolumeAccessMode
	MountOptions          []string // without a port
	Port                  int
	Path                  string
	ReadOnly              bool
}

// Objects builds the volume and the claim. The volume must be created with its claimRef: without one,
// the binder could bind it to any claim.
func (r Reserved) Objects() (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	source := nfs(r.Path)
	source.NFS.ReadOnly = r.ReadOnly
	volume := &corev1.PersistentVolume{
		ObjectMeta: r.VolumeMeta,
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      anySize(),
			AccessModes:                   []corev1.PersistentVolumeAccessMode{r.AccessMode},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              r.Class,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			MountOptions:                  withPort(r.MountOptions, r.Port),
			PersistentVolumeSource:        source,
			ClaimRef:                      claimRef(r.ClaimMeta.Namespace, r.ClaimMeta.Name),
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: r.ClaimMeta,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{r.AccessMode},
			Resources:        corev1.VolumeResourceRequirements{Requests: anySize()},
			StorageClassName: &r.Class,
			VolumeName:       r.VolumeMeta.Name,
		},
	}
	return volume, claim
}

// anySize says nothing about the file system; volumes and claims must have one.
func anySize() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// nfs is a path behind the tunnel of the node that mounts it.
func nfs(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}}
}

func claimRef(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}
