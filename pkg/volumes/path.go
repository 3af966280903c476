package volumes

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// VolumeName names the volume of a claim.
func VolumeName(claim types.UID) string { return wellknown.VolumePrefix + string(claim) }

// directoryName is the variable volume_name: the claim's label, else a name that no later claim can
// have, so that a new claim never gets the data of a deleted claim with the same name.
func directoryName(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := matchLabels(claim)[wellknown.LabelVolumeName]; ok {
		return name
	}
	return operations.Truncate(claim.Name, wellknown.MaxClaimNameBytes) + "-" + string(claim.UID)
}

// path is that of a claim's directory from the file system's root. CheckPath refuses "..", so the path
// is strictly below the base.
func (c Class) path(claim *corev1.PersistentVolumeClaim) (string, error) {
	below, err := c.Pattern.expand(claim)
	path := strings.TrimSuffix(c.BasePath, "/") + "/" + below
	if err == nil {
		err = operations.CheckPath(path)
	}
	if err != nil {
		return "", fmt.Errorf("path_pattern %s of storage class %s: %w", quoted(c.Pattern.text), quoted(c.Name), err)
	}
	return path, nil
}
