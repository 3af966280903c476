package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Created returns the message of a claim's event about its new volume, with what the claim's author may not
// expect of it. The sharer is another claim with the same directory, and the note is the mount Job's, each "" for none.
func Created(volume *corev1.PersistentVolume, sharer, note string) string {
	about := fmt.Sprintf("created volume %s: directory %s of file system %s", volume.Name, volume.Spec.NFS.Path, volume.Labels[wellknown.LabelFileSystemID])
	if sharer != "" {
		about += ", which claim " + sharer + " has, too"
	}
	parts := slices.DeleteFunc([]string{about, note, readOnlyNote(volume), labelsNote(volume)}, func(part string) bool { return part == "" })
	return operations.Shorten(strings.Join(parts, "; "), maxMessageBytes)
}

func readOnlyNote(volume *corev1.PersistentVolume) string {
	if !isReadOnly(volume.Spec.AccessModes) {
		return ""
	}
	return "it is mounted read-only, because ReadOnlyMany is the claim's only access mode"
}

// labelsNote returns a note for a claim whose labels may be meant for a volume that a person creates, or "".
func labelsNote(volume *corev1.PersistentVolume) string {
	var copied []string
	for _, key := range slices.Sorted(maps.Keys(volume.Labels)) {
		if !slices.Contains(settingLabels(), key) {
			copied = append(copied, key+"="+volume.Labels[key])
		}
	}
	if len(copied) == 0 {
		return ""
	}
	return fmt.Sprintf("the selector's labels %s are only copied to it: a volume that has them and is created later is not waited for",
		operations.Shorten(strings.Join(copied, ","), 3*maxQuotedBytes))
}
