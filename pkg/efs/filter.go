package efs

import (
	"fmt"
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

// Match says whether the cluster may use a file system.
func (f Filter) Match(fs FileSystem) bool {
	if len(f.IDs) > 0 && !slices.Contains(f.IDs, fs.ID) {
		return false
	}
	for key, value := range f.Tags {
		if got, ok := fs.Tags[key]; !ok || got != value {
			return false
		}
	}
	return true
}
