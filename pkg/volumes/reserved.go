package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Reserved describes a retained volume and the claim that it is reserved for.
type Reserved struct {
	VolumeMeta, ClaimMeta metav1.ObjectMeta
	Class                 string
	AccessMode            corev1.PersistentVolumeAccessMode
	MountOptions          []string // without a port
	Port                  int
	Path                  string
}

// Objects builds the volume and the claim. The volume must be created with its claimRef: without one,
// the binder could bind it to any claim.
func (r Reserved) Objects() (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	modes := []corev1.PersistentVolumeAccessMode{r.AccessMode}
	source, options := mount(r.Path, modes, r.MountOptions)
	volume := &corev1.PersistentVolume{
		ObjectMeta: r.VolumeMeta,
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      anySize(),
			AccessModes:                   modes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              r.Class,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			MountOptions:                  withPort(options, r.Port),
			PersistentVolumeSource:        source,
			ClaimRef:                      claimRef(r.ClaimMeta.Namespace, r.ClaimMeta.Name),
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: r.ClaimMeta,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      slices.Clone(modes),
			Resources:        corev1.VolumeResourceRequirements{Requests: anySize()},
			StorageClassName: &r.Class,
			VolumeName:       r.VolumeMeta.Name,
		},
	}
	return volume, claim
}

// anySize returns a size without a meaning: volumes and claims must have one.
func anySize() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// mount returns the source and the mount options of a directory's volume. Nothing in a cluster enforces access
// modes, and kubelet does not read a PersistentVolume's readOnly: the option ro is what counts.
func mount(path string, modes []corev1.PersistentVolumeAccessMode, options []string) (corev1.PersistentVolumeSource, []string) {
	source := nfs(path)
	if isReadOnly(modes) {
		source.NFS.ReadOnly, options = true, setMountOption(slices.Clone(options), "ro")
	}
	return source, options
}

// isReadOnly reports whether there is no access mode but ReadOnlyMany.
func isReadOnly(modes []corev1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(modes, func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany })
}

// nfs returns the source of a path behind the tunnel of the node that mounts it.
func nfs(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}}
}

func claimRef(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}
