package ports

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Volume is what a PersistentVolume says of ports.
type Volume struct {
	Name string
	// On is what holds the volume, by its annotations; without a file system it is not ours,
	// but its port still is in use.
	On       Key
	Port     int  // of the last port= option; 0 for none that could be one
	Loopback bool // its server is the node itself
	Root     bool // a root volume, which lives and goes with its target
	// Foreign says that another installation made it: its file system may be another account's.
	Foreign bool
}

// VolumeOf reads a PersistentVolume.
func VolumeOf(pv *corev1.PersistentVolume) Volume {
	return Volume{
		Name: pv.Name,
		On: Key{
			FileSystem:  pv.Annotations[wellknown.AnnotationFileSystemID],
			AccessPoint: pv.Annotations[wellknown.AnnotationAccessPointID],
		},
		Port:     portOption(mountOptions(pv)),
		Loopback: pv.Spec.NFS != nil && isLoopback(pv.Spec.NFS.Server),
		Root:     pv.Spec.StorageClassName == wellknown.RootStorageClass,
	}
}

// mountOptions are those that kubelet uses: where the old annotation has some, no others.
func mountOptions(pv *corev1.PersistentVolume) []string {
	if old, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		return []string{old}
	}
	return pv.Spec.MountOptions
}

func isLoopback(server string) bool {
	return server == wellknown.LoopbackAddress || server == "localhost"
}

// portOption reads the options as mount does: each may hold several, and the last one wins.
func portOption(options []string) int {
	port := 0
	for option := range strings.SplitSeq(strings.Join(options, ","), ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(option), "port=")
		if !ok {
			continue
		}
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || number > wellknown.MaxPort {
			number = 0
		}
		port = number
	}
	return port
}
