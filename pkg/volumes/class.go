package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Class is a valid storage class of ours.
type Class struct {
	Name              string
	ReclaimPolicy     corev1.PersistentVolumeReclaimPolicy // Delete or Retain
	WaitsForNode      bool                                 // WaitForFirstConsumer
	Zones             []string                             // that volumes may be in, sorted; nil is everywhere
	MountOptions      []string                             // the defaults with the class's own, without a port
	RequireVolumeName bool

	DefaultFileSystemID string   // "" has one chosen
	FileSystemIDs       []string // that claims may ask for; nil is all
	FileSystemTags      map[string]string
	EnforceZoneAffinity bool

	BasePath string // absolute, "/" or without a slash at the end
	Pattern  Pattern

	Rules operations.Rules // which existing directories a volume may use

	Directory    operations.Directory // how a new one is made
	AllowLowGIDs bool                 // the range of gids may begin below wellknown.DefaultGIDMin
	KeepDeleted  string               // in the trash: a duration, "forever", or "" for not at all
}

// ParseClass parses a storage class. The error is a Refusal that names everything that is wrong with
// it: parameters cannot be edited, so reporting them one by one would need a new class for each.
func ParseClass(object *storagev1.StorageClass) (Class, error) {
	class := Class{
		Name:         object.Name,
		WaitsForNode: waitsForNode(object),
	}
	findings := slices.Concat(
		class.setParameters(object.Parameters),
		class.setReclaimPolicy(object.ReclaimPolicy),
		class.setMountOptions(object.MountOptions),
		class.setZones(object.AllowedTopologies),
	)
	if len(findings) > 0 {
		return Class{}, refuse("storage class " + quoted(object.Name) + ": " + strings.Join(findings, "; "))
	}
	return class, nil
}

func (c *Class) setReclaimPolicy(policy *corev1.PersistentVolumeReclaimPolicy) []string {
	c.ReclaimPolicy = corev1.PersistentVolumeReclaimDelete // as the cluster has it
	if policy != nil {
		c.ReclaimPolicy = *policy
	}
	if !isReclaimPolicy(string(c.ReclaimPolicy)) {
		return []string{fmt.Sprintf("reclaimPolicy is %s: write Delete or Retain", quoted(string(c.ReclaimPolicy)))}
	}
	return nil
}

// isReclaimPolicy leaves out Recycle, which would empty a directory without asking its owners.
func isReclaimPolicy(policy string) bool {
	return policy == string(corev1.PersistentVolumeReclaimDelete) || policy == string(corev1.PersistentVolumeReclaimRetain)
}

func (c *Class) setMountOptions(options []string) (findings []string) {
	c.MountOptions, findings = mergeMountOptions(wellknown.DefaultMountOptions, options)
	return findings
}
