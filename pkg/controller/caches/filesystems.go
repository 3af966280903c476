package caches

import (
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// FileSystems are those that objects name for which a mount Job may have something to do: Jobs,
// unsettled volumes and root claims.
func (c *Caches) FileSystems() []string {
	found := append(c.Jobs.GetIndexer().ListIndexFuncValues(byFileSystem), c.Volumes.GetIndexer().ListIndexFuncValues(byFileSystem)...)
	for _, key := range c.Claims.GetStore().ListKeys() {
		if id, ok := strings.CutPrefix(key, c.namespace+"/"+wellknown.RootVolumePrefix); ok {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
