package sharedvolumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const labelManagedBy = "app.kubernetes.io/managed-by"

// newVolume is an object's volume. It has its claimRef from the first write on, so that the binder
// gives it to nobody else; a uid is only for a claim that has lost the volume of this name.
func newVolume(o *v1alpha1.SharedVolume, port int, claim types.UID) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(o),
			Annotations: volumeAnnotations(o),
			Labels: map[string]string{
				labelManagedBy:              wellknown.ManagerDeployment,
				wellknown.LabelFileSystemID: o.Spec.FileSystemID,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      size(),
			AccessModes:                   accessModes(o),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			VolumeMode:                    &mode,
			MountOptions:                  mountOptions(o),
			PersistentVolumeSource:        source(o),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: o.Namespace, Name: claimName(o), UID: claim,
			},
		},
	}
	volumes.SetPort(volume, port)
	return volume
}

func volumeAnnotations(o *v1alpha1.SharedVolume) map[string]string {
	annotations := map[string]string{
		wellknown.AnnotationSharedVolume: nameOf(o),
		wellknown.AnnotationFileSystemID: o.Spec.FileSystemID,
	}
	if id := o.Spec.AccessPointID; id != "" {
		annotations[wellknown.AnnotationAccessPointID] = id
	}
	return annotations
}

// source leads to the root of an access point's tunnel, and to the path of a file system's.
func source(o *v1alpha1.SharedVolume) corev1.PersistentVolumeSource {
	nfs := &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/", ReadOnly: o.Spec.ReadOnly}
	if o.Spec.AccessPointID == "" {
		nfs.Path = o.Spec.Path
	}
	return corev1.PersistentVolumeSource{NFS: nfs}
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
	none := "" // no class, or the cluster's default class would make another volume
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

// leadsElsewhere says why a volume cannot be mended, or "": its source is immutable.
func leadsElsewhere(o *v1alpha1.SharedVolume, volume *corev1.PersistentVolume) string {
	if !equality.Semantic.DeepEqual(volume.Spec.PersistentVolumeSource, source(o)) {
		return "the volume leads elsewhere"
	}
	if mode := volume.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return "the volume is not a file system"
	}
	return ""
}

// mended is the volume as it should be. Whatever others have added stays.
func mended(o *v1alpha1.SharedVolume, is *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, port int) *corev1.PersistentVolume {
	want := newVolume(o, port, "")
	next := volumes.Mend(is, want)
	if o.Spec.AccessPointID == "" {
		delete(next.Annotations, wellknown.AnnotationAccessPointID)
	}
	next.Labels = labels.Merge(next.Labels, want.Labels)
	next.Spec.ClaimRef = mendedRef(is.Spec.ClaimRef, want.Spec.ClaimRef, claim)
	return next
}

// mendedRef is never without a name, or any claim could have the volume. A uid is the binder's to
// write; only to a claim that has lost the volume it has to be given, and that of a claim which
// is gone is taken away.
func mendedRef(is, want *corev1.ObjectReference, claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	if is == nil || is.Namespace != want.Namespace || is.Name != want.Name || is.Kind != want.Kind {
		is = want
	}
	kept := *is
	switch {
	case claim == nil && kept.UID != "":
		kept.UID, kept.ResourceVersion = "", ""
	case claim == nil || claim.UID == kept.UID:
	case claim.Status.Phase == corev1.ClaimPending && kept.UID != "":
		kept.UID, kept.ResourceVersion = "", ""
	case claim.Status.Phase == corev1.ClaimBound, claim.Status.Phase == corev1.ClaimLost:
		kept.UID, kept.ResourceVersion = claim.UID, ""
	}
	return &kept
}
