package volumes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// volumeNames matches the volume names of the original system. They cannot contain a path.
var volumeNames = regexp.MustCompile(`^[a-z0-9_-]+$`)

// settingLabels returns the labels that say something to us; all others are only copied to volumes.
func settingLabels() []string {
	return []string{wellknown.LabelVolumeName, wellknown.LabelFileSystemID, wellknown.LabelReclaimPolicy}
}

func matchLabels(claim *corev1.PersistentVolumeClaim) map[string]string {
	if claim.Spec.Selector == nil {
		return nil
	}
	return claim.Spec.Selector.MatchLabels
}

// setLabels reads the claim's selector, whose labels are the claim's settings.
func (c *Claim) setLabels(object *corev1.PersistentVolumeClaim, class Class) []string {
	var findings []string
	if selector := object.Spec.Selector; selector != nil && len(selector.MatchExpressions) > 0 {
		findings = append(findings, "spec.selector.matchExpressions cannot be kept by a volume that is made for the claim: write matchLabels")
	}
	if _, ok := c.Labels[wellknown.LabelVolumeName]; !ok && class.RequireVolumeName {
		findings = append(findings, fmt.Sprintf("storage class %s requires the label %s: add it to spec.selector.matchLabels",
			quoted(class.Name), wellknown.LabelVolumeName))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if why := c.setLabel(key, c.Labels[key], class); why != "" {
			findings = append(findings, fmt.Sprintf("label %s in spec.selector.matchLabels is %s: %s", shownKey(key), quoted(c.Labels[key]), why))
		}
	}
	return findings
}

// setLabel sets the field of one label, and returns what is wrong with it, or "".
func (c *Claim) setLabel(key, value string, class Class) string {
	switch key {
	case wellknown.LabelVolumeName:
		if !volumeNames.MatchString(value) {
			return "write a-z, 0-9, _ and - only"
		}
	case wellknown.LabelFileSystemID:
		c.FileSystemID = value
		return refusedFileSystem(value, class)
	case wellknown.LabelReclaimPolicy:
		c.ReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(value)
		if !isReclaimPolicy(value) {
			return "write Delete or Retain"
		}
	default:
		if own, ok := similar(key, settingLabels()); ok {
			return "write " + own
		}
	}
	return refusedLabel(key, value)
}

func refusedFileSystem(id string, class Class) string {
	if err := ports.CheckTargetID(id); err != nil {
		return "write a file system's id such as fs-0123456789abcdef0"
	}
	if id == wellknown.DefaultFileSystemID {
		return "leave it out to have one chosen"
	}
	if len(class.FileSystemIDs) > 0 && !slices.Contains(class.FileSystemIDs, id) {
		return fmt.Sprintf("storage class %s allows %s", quoted(class.Name), operations.Shorten(strings.Join(class.FileSystemIDs, ", "), 3*maxQuotedBytes))
	}
	return ""
}

// refusedLabel returns why the volume cannot have a label, or "". Other programs trust labels below these domains
// to be set by the cluster or by us, not by a tenant.
func refusedLabel(key, value string) string {
	if key == wellknown.LabelRootKey {
		return "leave it out: it is for volumes of whole file systems"
	}
	for _, domain := range []string{wellknown.KubernetesDomain, wellknown.KubernetesShortDomain, wellknown.Domain} {
		if isBelowDomain(key, domain) {
			return "leave it out: labels of " + domain + " are not copied to volumes"
		}
	}
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return "no volume can have this label"
	}
	return ""
}

func isBelowDomain(key, domain string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}

// shownKey quotes an invalid key.
func shownKey(key string) string {
	if len(validation.IsQualifiedName(key)) > 0 {
		return quoted(key)
	}
	return key
}
