package ledger

import (
	"maps"
	"slices"
	"sync"
)

// node is one directory of the ledger, as it was read.
type node struct {
	mu      sync.Mutex        // a node's is locked before that of its parent
	entries map[string]*Entry // by file name; nil is one that was not read yet; guarded by mu
	folders map[string]bool   // all other names; what is no directory after all is an empty node; nil until read; guarded by mu
}

func (n *node) hasEntries() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.entries) > 0
}

func (n *node) put(e *Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries[e.FileName()] = e
}

func (n *node) forgetEntry(fileName string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.entries, fileName)
}

func (n *node) hasFolder(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.folders[name]
}

func (n *node) addFolder(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.folders[name] = true
}

func (n *node) removeFolder(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.folders, name)
}

func (n *node) folderNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.folders))
}

func (n *node) isEmpty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.entries) == 0 && len(n.folders) == 0
}
