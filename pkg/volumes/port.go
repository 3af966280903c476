package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SetPort sets the port in a volume's mount options and says whether that changed the volume. If the
// volume has the old annotation with mount options, kubelet reads no others.
func SetPort(volume *corev1.PersistentVolume, port int) (changed bool) {
	if old, ok := volume.Annotations[corev1.MountOptionAnnotation]; ok {
		options := strings.Join(withPort([]string{old}, port), ",")
		volume.Annotations[corev1.MountOptionAnnotation] = options
		return options != old
	}
	options := withPort(volume.Spec.MountOptions, port)
	changed = !slices.Equal(options, volume.Spec.MountOptions)
	volume.Spec.MountOptions = options
	return changed
}

// withPort returns mount options with this port and no other. Options that have only this port are
// returned unchanged.
func withPort(options []string, port int) []string {
	want := fmt.Sprintf("port=%d", port)
	all := strings.Split(strings.Join(options, ","), ",")
	var others []string
	for _, option := range all {
		option = strings.TrimSpace(option)
		if option != "" && !strings.HasPrefix(option, "port=") {
			others = append(others, option)
		}
	}
	if slices.Contains(all, want) && len(all) == len(others)+1 {
		return options
	}
	return append(others, want)
}
