package sharedvolumes

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// AnyNamespace is all namespaces in Settings.Paths.
const AnyNamespace = "*"

// Settings are the administrator's settings for SharedVolumes.
type Settings struct {
	// Paths are the namespaces in which a SharedVolume may name a path. Who may create one there
	// reaches everything on the file system, also other namespaces' volumes.
	Paths []string
}

// keyOf returns the tunnel of an object.
func keyOf(o *v1alpha1.SharedVolume) ports.Key {
	return ports.Key{FileSystem: o.Spec.FileSystemID, AccessPoint: o.Spec.AccessPointID}
}

func nameOf(o *v1alpha1.SharedVolume) string { return o.Namespace + "/" + o.Name }

func volumeName(o *v1alpha1.SharedVolume) string {
	return wellknown.SharedVolumePrefix + o.Namespace + "-" + o.Name
}

// namesFor returns the existing objects whose volume has a name. The name does not say where the
// namespace ends, so each hyphen may be the one between namespace and name.
func namesFor(volumeName string, exists func(namespaced string) bool) []string {
	rest, ok := strings.CutPrefix(volumeName, wellknown.SharedVolumePrefix)
	if !ok {
		return nil
	}
	var found []string
	for i, letter := range []byte(rest) {
		if letter != '-' {
			continue
		}
		if namespaced := rest[:i] + "/" + rest[i+1:]; exists(namespaced) {
			found = append(found, namespaced)
		}
	}
	return found
}

func claimName(o *v1alpha1.SharedVolume) string { return wellknown.SharedClaimPrefix + o.Name }

// Demand returns the access points and identities that objects need. One that is being deleted counts,
// because pods use it.
func Demand(objects []*v1alpha1.SharedVolume, known bool, s Settings) ports.Demand {
	demand := ports.Demand{Known: known}
	for _, o := range objects {
		if s.refusal(o) != "" {
			continue
		}
		if o.Spec.AccessPointID != "" {
			demand.AccessPoints = append(demand.AccessPoints, keyOf(o))
		}
		if o.Spec.IAM {
			demand.IAM = append(demand.IAM, keyOf(o))
		}
	}
	demand.AccessPoints, demand.IAM = sorted(demand.AccessPoints), sorted(demand.IAM)
	return demand
}

func sorted(keys []ports.Key) []ports.Key {
	slices.SortFunc(keys, func(a, b ports.Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(keys)
}

// refusal returns why an object is invalid, or "". The definition's schema refuses most of it before; but it may
// be an older one, or have been edited.
func (s Settings) refusal(o *v1alpha1.SharedVolume) string {
	if err := ports.CheckTargetID(o.Spec.FileSystemID); err != nil {
		return "spec.fileSystemID: " + err.Error()
	}
	if why := s.refusedSource(o); why != "" {
		return why
	}
	return refusedNames(o)
}

func (s Settings) refusedSource(o *v1alpha1.SharedVolume) string {
	point, path := o.Spec.AccessPointID, o.Spec.Path
	switch {
	case point != "" && path != "":
		return "spec.path: leave it out, as the access point says which directory it is"
	case point == "" && path == "":
		return "spec.accessPointID is missing: want an access point of the file system"
	case point != "":
		if err := efs.CheckAccessPointID(point); err != nil {
			return "spec.accessPointID: " + err.Error()
		}
		return ""
	case !slices.Contains(s.Paths, AnyNamespace) && !slices.Contains(s.Paths, o.Namespace):
		return fmt.Sprintf("spec.path: not allowed in namespace %s by the manager's setting --shared-volume-paths; use an access point", o.Namespace)
	}
	if err := operations.CheckPath(path); err != nil {
		return "spec.path: " + err.Error()
	}
	return ""
}

func refusedNames(o *v1alpha1.SharedVolume) string {
	for _, name := range []string{volumeName(o), claimName(o)} {
		if most := validation.DNS1123SubdomainMaxLength; len(name) > most {
			return fmt.Sprintf("the name is too long: %s has %d characters, more than %d; create it again under a shorter name", name, len(name), most)
		}
	}
	return ""
}
