package efs

import (
	"fmt"
	"slices"
	"strings"
)

// Filter is the part of a region's file systems that an administrator lets the cluster use.
// The zero Filter is all of them.
type Filter struct {
	IDs  []string          // any of these; none stands for all
	Tags map[string]string // every one of these
}

// ParseFilter reads a comma-separated list of ids, and one of key=value tags. Either may be
// empty. A value may hold "=", but no comma.
func ParseFilter(ids, tags string) (Filter, error) {
	var filter Filter
	for _, id := range listItems(ids) {
		if err := CheckFileSystemID(id); err != nil {
			return Filter{}, err
		}
		filter.IDs = append(filter.IDs, id)
	}
	for _, tag := range listItems(tags) {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return Filter{}, fmt.Errorf("%q is no tag: want key=value", tag)
		}
		if _, twice := filter.Tags[key]; twice {
			return Filter{}, fmt.Errorf("%q is the second value of tag %q: want one, because all tags must match", value, key)
		}
		if filter.Tags == nil {
			filter.Tags = map[string]string{}
		}
		filter.Tags[key] = value
	}
	return filter, nil
}

// listItems splits at commas, and forgives spaces and a comma too many.
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
