package table

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// maxOptionEvents is how many volumes get an event: there can be thousands, of one class.
const maxOptionEvents = 100

// optionConditions are about volumes with a mount option that has pods write elsewhere: one on each volume, and
// one on the table for all of them.
func optionConditions(objects []*corev1.PersistentVolume) (all []notice) {
	var names []string
	reasons := map[string]notice{}
	for _, object := range objects {
		if why := harmfulOption(object); why != "" {
			n := condition("", wellknown.EventMountOptionHarmful, why+". Edit the volume's spec.mountOptions, and restart its pods")
			n.Subject = status.Subject{Kind: status.Volume, Name: object.Name}
			n.about = object
			reasons[object.Name], names = n, append(names, object.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxOptionEvents)] {
		all = append(all, reasons[name])
	}
	return append(all, condition("mount options", wellknown.EventMountOptionHarmful, fmt.Sprintf(
		"mount options of %s may have pods write elsewhere than in the volume: kubectl efs-stunnel doctor says why", someOf(names))))
}

// harmfulOption is about volumes whose ports are corrected, too; others are not ours to judge.
func harmfulOption(object *corev1.PersistentVolume) string {
	if object == nil {
		return ""
	}
	if volume := ports.VolumeOf(object); !volume.Loopback || volume.On.FileSystem == "" {
		return ""
	}
	return volumes.HarmfulMountOption(object)
}
