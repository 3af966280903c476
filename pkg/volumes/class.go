package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	ShareReadOnly     bool // claims may read, and be read, across namespaces

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

	AccessPoints *AccessPoints // of a class of the AWS EFS CSI driver; nil for directories alone
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
	if !isReclaimPolicy(c.ReclaimPolicy) {
		return []string{fmt.Sprintf("reclaimPolicy is %s: write Delete or Retain", quoted(string(c.ReclaimPolicy)))}
	}
	return nil
}

// isReclaimPolicy leaves out Recycle, which would empty a directory without asking its owners.
func isReclaimPolicy(policy corev1.PersistentVolumeReclaimPolicy) bool {
	return policy == corev1.PersistentVolumeReclaimDelete || policy == corev1.PersistentVolumeReclaimRetain
}

func (c *Class) setMountOptions(options []string) (findings []string) {
	if c.AccessPoints != nil {
		options = c.driverMountOptions(options)
	}
	c.MountOptions, findings = mergeMountOptions(wellknown.DefaultMountOptions, options)
	return findings
}

// setZones reads allowedTopologies: one of the terms must hold, with all of its expressions.
func (c *Class) setZones(terms []corev1.TopologySelectorTerm) (findings []string) {
	if len(terms) == 0 {
		return nil
	}
	c.Zones = []string{} // not nil, which would allow all zones
	for _, term := range terms {
		zones, findingsOfTerm := termZones(term)
		c.Zones = append(c.Zones, zones...)
		findings = append(findings, findingsOfTerm...)
	}
	slices.Sort(c.Zones)
	c.Zones = slices.Compact(c.Zones)
	if len(c.Zones) == 0 && len(findings) == 0 {
		return []string{"allowedTopologies allow no zone: write " + corev1.LabelTopologyZone + " with the zones that volumes may be in"}
	}
	return findings
}

// termZones returns the zones that all expressions of a term name.
func termZones(term corev1.TopologySelectorTerm) (zones, findings []string) {
	for i, expression := range term.MatchLabelExpressions {
		if expression.Key != corev1.LabelTopologyZone && expression.Key != corev1.LabelFailureDomainBetaZone {
			findings = append(findings, fmt.Sprintf("allowedTopologies has the key %s: write %s; zones are all that file systems differ in",
				quoted(expression.Key), corev1.LabelTopologyZone))
			continue
		}
		if i == 0 {
			zones = slices.Clone(expression.Values)
		}
		zones = slices.DeleteFunc(zones, func(zone string) bool { return !slices.Contains(expression.Values, zone) })
	}
	return zones, findings
}

func inZones(zones []string) string {
	if len(zones) == 1 {
		return "zone " + quoted(zones[0])
	}
	return "zones " + quoted(strings.Join(zones, ", "))
}

type parameter struct {
	name string
	set  func(c *Class, value string) error // the error says what is allowed
}

// parameters returns those of classes of ours. docs/reference/class-parameters.md has a row for each comment here, and of
// driverParameters; the default of a boolean without one is false.
func parameters() []parameter {
	return []parameter{
		// file system of claims that name none; `auto`: the file system that has the path already, else a stable choice (default DefaultFileSystemID)
		{"default_file_system_id", setDefaultFileSystem},
		// comma-separated list of file systems that claims may name (default all)
		{"file_system_ids", setFileSystemIDs},
		// `key=value,…`: only file systems with all of these tags
		{"file_system_tags", setFileSystemTags},
		// directory that contains the volumes (default DefaultBasePath)
		{"base_path", setBasePath},
		// path below it; also `${.PVC.name}`, `${.PVC.uid}`, `${.PVC.labels.KEY}`, `${.PVC.annotations.KEY}`, `${.PV.name}` (default DefaultPathPattern)
		{"path_pattern", setPattern},
		// allow a directory that a claim of another namespace owns, or whose retained data is of another class, or of an earlier namespace of the same name
		{"share_across_namespaces", boolean(func(c *Class) *bool { return &c.Rules.ShareAcrossNamespaces })},
		// allow a directory that a claim of another cluster owns
		{"share_across_clusters", boolean(func(c *Class) *bool { return &c.Rules.ShareAcrossClusters })},
		// claims may let other namespaces read their directory, and read those of others
		{"share_read_only", boolean(func(c *Class) *bool { return &c.ShareReadOnly })},
		// allow a directory with content and no owner (default DefaultAdoptExisting)
		{"adopt_existing", setAdoptExisting},
		// refuse claims without `volume_name`
		{"require_volume_name", boolean(func(c *Class) *bool { return &c.RequireVolumeName })},
		// octal mode of a new directory (default DefaultDirectoryPerms)
		{"directory_perms", setMode},
		// owner and group of a new directory; with `gidAllocate` only `uid` (default root)
		{"uid", number(0, func(c *Class) *int { return &c.Directory.UID })},
		{"gid", number(0, func(c *Class) *int { return &c.Directory.GID })},
		// allocate a gid for each directory (mode 2771), which Kubernetes adds to its pods' groups
		{"gidAllocate", boolean(func(c *Class) *bool { return &c.Directory.AllocateGID })},
		// range of allocated gids, from 2000 (default DefaultGIDMin, DefaultGIDMax)
		{"gidMin", allocatedGID(func(c *Class) *int { return &c.Directory.GIDMin })},
		{"gidMax", allocatedGID(func(c *Class) *int { return &c.Directory.GIDMax })},
		// allow the range to begin at 1000. Users of many images have such a gid, and so have access to the directory without being given it
		{"allow_low_gids", boolean(func(c *Class) *bool { return &c.AllowLowGIDs })},
		// how long a deleted directory stays in the trash: a duration, or `forever` (default DefaultKeepDeleted)
		{"keep_deleted", setKeepDeleted},
		// volumes on One Zone file systems get a node affinity for that zone
		{"enforce_zone_affinity", boolean(func(c *Class) *bool { return &c.EnforceZoneAffinity })},
	}
}

func parameterNamesOf(parameters []parameter) []string {
	var names []string
	for _, p := range parameters {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

func (c *Class) setParameters(given map[string]string) []string {
	if _, ofDriver := given[parameterMode]; ofDriver {
		return c.setDriverParameters(given)
	}
	c.BasePath = wellknown.DefaultBasePath
	c.Pattern, _ = ParsePattern(wellknown.DefaultPathPattern) // a test parses it, too
	c.Rules.RefuseExisting = !wellknown.DefaultAdoptExisting
	findings := c.set(parameters(), given)
	c.inheritGroup()
	return append(findings, c.contradictions(given)...)
}

func (c *Class) set(allowed []parameter, given map[string]string) (findings []string) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(allowed, func(p parameter) bool { return p.name == key })
		if i < 0 {
			findings = append(findings, c.unknownParameter(key, parameterNamesOf(allowed)))
			continue
		}
		if err := allowed[i].set(c, given[key]); err != nil {
			findings = append(findings, fmt.Sprintf("parameter %s is %s: %v", key, quoted(given[key]), err))
		}
	}
	return findings
}

// inheritGroup sets the setgid bit where a group of the class may write. Kubelet makes a subPath as root, with the
// mode of the volume's directory: without the bit it is root's group that may write there, and the pod may not.
func (c *Class) inheritGroup() {
	mode := uint64(wellknown.DefaultDirectoryPerms)
	switch {
	case c.Directory.Mode != "":
		mode, _ = strconv.ParseUint(c.Directory.Mode, 8, 32) // setMode has checked it
	case c.Directory.AllocateGID:
		return // the default has the bit
	}
	if (c.Directory.GID > 0 || c.Directory.AllocateGID) && mode&0o020 != 0 {
		c.Directory.Mode = fmt.Sprintf("%04o", mode|0o2000)
	}
}

func (c *Class) unknownParameter(key string, allowed []string) string {
	what, ofDriver := "unknown parameter "+quoted(key), c.AccessPoints != nil
	own, alike := similar(key, allowed)
	advice, foreign := foreignParameters()[key]
	switch {
	case strings.HasPrefix(key, "csi.storage.k8s.io/"):
		return what + ": " + leaveOut + "it is for CSI drivers"
	case ofDriver && strings.HasPrefix(key, "fileSystemId"):
		return what + ": use fileSystemId with the id itself"
	case alike:
		return what + ": use " + own
	case foreign && (!ofDriver || !strings.HasPrefix(advice, "use ")): // which a driver's class could not
		return what + ": " + advice
	}
	return what + ": allowed are " + strings.Join(allowed, ", ")
}

// contradictions returns the findings about parameters that are each valid alone.
func (c *Class) contradictions(given map[string]string) []string {
	has := func(key string) bool { _, ok := given[key]; return ok }
	var findings []string
	if c.DefaultFileSystemID != "" && len(c.FileSystemIDs) > 0 && !slices.Contains(c.FileSystemIDs, c.DefaultFileSystemID) {
		findings = append(findings, fmt.Sprintf("parameter default_file_system_id is %q: file_system_ids must name it, too", c.DefaultFileSystemID))
	}
	if c.Directory.AllocateGID && has("gid") {
		findings = append(findings, fmt.Sprintf("parameter gid is %s: leave it out, or gidAllocate with its range: gid is one group for all directories, gidAllocate gives each its own", quoted(given["gid"])))
	}
	for _, key := range []string{"allow_low_gids", "gidMin", "gidMax"} {
		if !c.Directory.AllocateGID && has(key) {
			findings = append(findings, fmt.Sprintf(`parameter %s is %s: leave it out, or write gidAllocate: "true", which is not the default here`, key, quoted(given[key])))
		}
	}
	return append(findings, c.rangeContradictions(given)...)
}

// rangeContradictions compares the ends of the range of gids, 0 being the default, with the limits and each other.
func (c *Class) rangeContradictions(given map[string]string) []string {
	var findings []string
	for _, end := range []struct {
		key string
		gid int
	}{{"gidMax", c.Directory.GIDMax}, {"gidMin", c.Directory.GIDMin}} {
		if end.gid != 0 && end.gid < wellknown.DefaultGIDMin && !c.AllowLowGIDs {
			findings = append(findings, fmt.Sprintf("parameter %s is %q: %s", end.key, given[end.key], wantAllocatedGID()))
		}
	}
	lowest, highest := c.Directory.GIDRange()
	switch {
	case lowest <= highest || len(findings) > 0:
	case c.Directory.GIDMin == 0:
		findings = append(findings, fmt.Sprintf("parameter gidMax is %q: write gidMin, too, which is %d by default", given["gidMax"], lowest))
	default:
		findings = append(findings, fmt.Sprintf("parameter gidMin is %q: it must not be above gidMax, %d", given["gidMin"], highest))
	}
	return findings
}
