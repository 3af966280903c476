package discovery

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// optionConditions are about volumes with a mount option that has pods write elsewhere: one on each volume, and
// one on the table for all of them. There can be thousands, of one class.
func optionConditions(objects []*corev1.PersistentVolume) (all []notice) {
	var names []string
	for _, object := range objects {
		why := harmfulOption(object)
		if why == "" {
			continue
		}
		n := condition("mount option of "+object.Name, wellknown.EventMountOptionHarmful,
			why+". Edit the volume's spec.mountOptions, and restart its pods")
		n.about, n.onlyAbout = object, true
		all, names = append(all, n), append(names, object.Name)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return append(all, condition("mount options", wellknown.EventMountOptionHarmful, fmt.Sprintf(
		"mount options of %s may have pods write elsewhere than in the volume: the events of each volume say why", someOf(names))))
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
