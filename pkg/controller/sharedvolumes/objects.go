package sharedvolumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const labelManagedBy = "app.kubernetes.io/managed-by"

// pair is the object's volume and claim. Pods may mount the claim, so it is kept.
func (s state) pair() volumes.Pair {
	return volumes.Pair{
		Volume: s.volume, Claim: s.claim, KeepClaim: true,
		WantVolume: newVolume(s.object, s.port()), WantClaim: newClaim(s.object),
	}
}

// newVolume is an object's volume. It is reserved for its claim from the first write on, so that the
// binder never gives it to another.
func newVolume(o *v1alpha1.SharedVolume, port int) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	// source is the root of an access point's tunnel, or the path on a file system's.
	source := &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/", ReadOnly: o.Spec.ReadOnly}
	annotations := map[string]string{
		wellknown.AnnotationSharedVolume: nameOf(o),
		wellknown.AnnotationFileSystemID: o.Spec.FileSystemID,
	}
	if id := o.Spec.AccessPointID; id != "" {
		annotations[wellknown.AnnotationAccessPointID] = id
	} else {
		source.Path = o.Spec.Path
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumeName(o), Annotations: annotations,
			Labels: map[string]string{labelManagedBy: wellknown.ManagerDeployment, wellknown.LabelFileSystemID: o.Spec.FileSystemID},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      size(),
			AccessModes:                   accessModes(o),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			VolumeMode:                    &mode,
			MountOptions:                  mountOptions(o),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: source},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: o.Namespace, Name: claimName(o),
			},
		},
	}
	volumes.SetPort(volume, port)
	return volume
}

// mountOptions also say ro: of a PersistentVolume, kubelet does not read the source's readOnly.
func mountOptions(o *v1alpha1.SharedVolume) []string {
	options := strings.Split(wellknown.DefaultMountOptions, ",")
	if o.Spec.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

func accessModes(o *v1alpha1.SharedVolume) []corev1.PersistentVolumeAccessMode {
	if o.Spec.ReadOnly {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// size says nothing about the file system; the objects must have one.
func size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func newClaim(o *v1alpha1.SharedVolume) *corev1.PersistentVolumeClaim {
	none := "" // no class, or the cluster's default class would provision another volume
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: claimName(o),
			Annotations: map[string]string{wellknown.AnnotationSharedVolume: nameOf(o)},
			Labels:      map[string]string{labelManagedBy: wellknown.ManagerDeployment},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      accessModes(o),
			Resources:        corev1.VolumeResourceRequirements{Requests: size()},
			StorageClassName: &none,
			VolumeName:       volumeName(o),
		},
	}
}
