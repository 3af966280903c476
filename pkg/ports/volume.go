package ports

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Volume is what Assign needs of a PersistentVolume.
type Volume struct {
	Name string
	// On is where the volume is, by its annotations; without a file system it is not ours, but its
	// port still is in use.
	On       Key
	Port     int  // of the last port= option; 0 when there is no valid one
	Loopback bool // its server is the node itself
	Root     bool // a root volume, which is created and removed with its target
	Foreign  bool // another installation made it: its file system may be another account's
}

// VolumeOf reads a PersistentVolume.
func VolumeOf(pv *corev1.PersistentVolume) Volume {
	options := pv.Spec.MountOptions
	if old, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		options = []string{old} // kubelet then uses no others
	}
	nfs := pv.Spec.NFS
	return Volume{
		Name: pv.Name,
		On: Key{
			FileSystem:  pv.Annotations[wellknown.AnnotationFileSystemID],
			AccessPoint: pv.Annotations[wellknown.AnnotationAccessPointID],
		},
		Port:     portOption(options),
		Loopback: nfs != nil && (nfs.Server == wellknown.LoopbackAddress || nfs.Server == "localhost"),
		Root:     pv.Spec.StorageClassName == wellknown.RootStorageClass,
	}
}

// portOption reads the options as mount does: each may hold several, and the last one wins.
func portOption(options []string) int {
	port := 0
	for option := range strings.SplitSeq(strings.Join(options, ","), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(option), "port="); ok {
			port, _ = strconv.Atoi(text) // 0, or too large, when it is no number
		}
	}
	if port < 1 || port > wellknown.MaxPort {
		return 0
	}
	return port
}
