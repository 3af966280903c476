package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// parameter is one key of StorageClass.parameters.
type parameter struct {
	name string
	set  func(c *Class, value string) error // the error says what is allowed
}

func parameters() []parameter {
	return []parameter{
		{"default_file_system_id", setDefaultFileSystem},
		{"file_system_ids", setFileSystemIDs},
		{"file_system_tags", setFileSystemTags},
		{"base_path", setBasePath},
		{"path_pattern", setPattern},
		{"share_across_namespaces", boolean(func(c *Class) *bool { return &c.Rules.ShareAcrossNamespaces })},
		{"share_across_clusters", boolean(func(c *Class) *bool { return &c.Rules.ShareAcrossClusters })},
		{"adopt_existing", setAdoptExisting},
		{"require_volume_name", boolean(func(c *Class) *bool { return &c.RequireVolumeName })},
		{"directory_perms", setMode},
		{"uid", number(0, func(c *Class) *int { return &c.Directory.UID })},
		{"gid", number(0, func(c *Class) *int { return &c.Directory.GID })},
		{"gidAllocate", boolean(func(c *Class) *bool { return &c.Directory.AllocateGID })},
		{"gidMin", allocatedGID(func(c *Class) *int { return &c.Directory.GIDMin })},
		{"gidMax", allocatedGID(func(c *Class) *int { return &c.Directory.GIDMax })},
		{"allow_low_gids", boolean(func(c *Class) *bool { return &c.AllowLowGIDs })},
		{"keep_deleted", setKeepDeleted},
		{"enforce_zone_affinity", boolean(func(c *Class) *bool { return &c.EnforceZoneAffinity })},
	}
}

func parameterNames() []string {
	var names []string
	for _, p := range parameters() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// setParameters sets the class's fields, and returns what is wrong with the parameters.
func (c *Class) setParameters(given map[string]string) []string {
	c.BasePath = wellknown.DefaultBasePath
	c.Pattern, _ = ParsePattern(wellknown.DefaultPathPattern) // a test parses it, too
	c.Rules.RefuseExisting = !wellknown.DefaultAdoptExisting
	known := map[string]parameter{}
	for _, p := range parameters() {
		known[p.name] = p
	}
	var findings []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		p, ok := known[key]
		if !ok {
			findings = append(findings, unknownParameter(key))
			continue
		}
		if err := p.set(c, given[key]); err != nil {
			findings = append(findings, fmt.Sprintf("parameter %s is %s: %v", key, quoted(given[key]), err))
		}
	}
	c.inheritGroup()
	return append(findings, c.contradictions(given)...)
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

func unknownParameter(key string) string {
	what := "unknown parameter " + quoted(key)
	if advice, ok := foreignParameter(key); ok {
		return what + ": " + advice
	}
	if own, ok := similar(key, parameterNames()); ok {
		return what + ": use " + own
	}
	return what + ": allowed are " + strings.Join(parameterNames(), ", ")
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

// rangeContradictions compares the ends of the range of gids, 0 being the default, with the defaults
// and with each other.
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
