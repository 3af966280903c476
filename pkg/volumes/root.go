package volumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// RootName names the root volume and the root claim of a file system.
func RootName(fileSystemID string) string { return wellknown.RootVolumePrefix + fileSystemID }

// RootVolume is the volume of a whole file system. Its claimRef must be there from the first
// write on: without it, the binder would give all data to whatever claim asks for the class.
func RootVolume(fileSystemID string, port int, namespace string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        RootName(fileSystemID),
			Annotations: map[string]string{wellknown.AnnotationFileSystemID: fileSystemID},
			Labels:      rootLabels(fileSystemID),
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: rootSize()},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              wellknown.RootStorageClass,
			VolumeMode:                    &mode,
			MountOptions:                  rootMountOptions(port),
			PersistentVolumeSource:        nfs("/"),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1",
				Kind:       "PersistentVolumeClaim",
				Namespace:  namespace,
				Name:       RootName(fileSystemID),
			},
		},
	}
}

// RootClaim is the claim that mount Jobs mount.
func RootClaim(fileSystemID, namespace string) *corev1.PersistentVolumeClaim {
	class := wellknown.RootStorageClass
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      RootName(fileSystemID),
			Namespace: namespace,
			Labels:    rootLabels(fileSystemID),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: rootSize()}},
			StorageClassName: &class,
			VolumeName:       RootName(fileSystemID),
		},
	}
}

func rootLabels(fileSystemID string) map[string]string {
	return map[string]string{wellknown.LabelFileSystemID: fileSystemID, wellknown.LabelRootKey: fileSystemID}
}

func rootMountOptions(port int) []string {
	options := strings.Split(wellknown.DefaultMountOptions, ",")
	for option := range strings.SplitSeq(wellknown.RootMountOptions, ",") {
		options = setMountOption(options, option)
	}
	return withPort(options, port)
}

// rootSize says nothing about the file system; the objects must have one.
func rootSize() resource.Quantity { return resource.MustParse("1Gi") }
