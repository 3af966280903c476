package efs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Filter selects the file systems that the cluster may use. The zero Filter selects all.
type Filter struct {
	IDs  []string          // any of these; empty for all
	Tags map[string]string // every one of these
}

// ParseTags parses a comma-separated list of key=value tags, nil for an empty one. A value may contain
// "=", but no comma.
func ParseTags(list string) (map[string]string, error) {
	var tags map[string]string
	for _, tag := range listItems(list) {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is no tag: want key=value", tag)
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("%q is the second value of tag %q: want one, because all tags must match", value, key)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[key] = value
	}
	return tags, nil
}

// listItems splits at commas. Spaces and empty items are ignored.
func listItems(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Match reports whether the cluster may use a file system.
func (f Filter) Match(fs FileSystem) bool { return f.Exclusion(fs) == "" }

// Exclusion returns why the cluster may not use a file system, and how to allow it; "" if it may.
func (f Filter) Exclusion(fs FileSystem) string {
	if len(f.IDs) > 0 && !slices.Contains(f.IDs, fs.ID) {
		return "it is not one of --file-system-ids: add it there"
	}
	for _, key := range slices.Sorted(maps.Keys(f.Tags)) {
		if value, ok := fs.Tags[key]; !ok || value != f.Tags[key] {
			return fmt.Sprintf("it lacks the tag %[1]s=%[2]s of --file-system-tags: aws efs tag-resource --resource-id %[3]s --tags Key=%[1]s,Value=%[2]s",
				key, f.Tags[key], fs.ID)
		}
	}
	return ""
}
