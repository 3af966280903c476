package usage

import (
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// measurements are what surveys have counted since this leader began, by file system and path. What was
// counted before is in the annotations of claims.
type measurements struct {
	mu           sync.Mutex
	byFileSystem map[string]map[string]volumes.UsageRecord // guarded by mu
}

func (m *measurements) add(fileSystemID string, all []operations.Usage, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byFileSystem == nil {
		m.byFileSystem = map[string]map[string]volumes.UsageRecord{}
	}
	known := m.byFileSystem[fileSystemID]
	if known == nil {
		known = map[string]volumes.UsageRecord{}
		m.byFileSystem[fileSystemID] = known
	}
	for _, usage := range all {
		known[usage.Path] = volumes.NewUsageRecord(usage, at)
	}
}

func (m *measurements) of(fileSystemID, path string) (record volumes.UsageRecord, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, ok = m.byFileSystem[fileSystemID][path]
	return record, ok
}

// keepOnly drops what no volume has any more.
func (m *measurements) keepOnly(fileSystemID string, paths map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.byFileSystem[fileSystemID] {
		if !paths[path] {
			delete(m.byFileSystem[fileSystemID], path)
		}
	}
}
