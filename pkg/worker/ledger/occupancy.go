package ledger

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Occupancy is what an operation finds at its path: the entries of the ledger, and the directory.
type Occupancy struct {
	Own      *Entry      // of the operation's volume; nil if it has none
	Leaving  *Entry      // of its cleanup that has begun: own, or beside own if a setup has died; nil if there is none
	Others   []*Entry    // of other owners; those that leave come last
	Retained []*Entry    // marks of retained data, which are no owners any more
	Info     fs.FileInfo // of the directory; nil if there is none, or if only owners were read
}

// Owners reads the entries of the operation's path.
func (l *Ledger) Owners(ctx context.Context, op operations.Operation) (Occupancy, error) {
	entries, err := l.Entries(ctx, op.Path)
	found := Occupancy{}
	for _, e := range entries {
		if e.Volume == op.Volume && e.State == StateLeaving {
			found.Leaving = e
		}
		switch {
		case e.State == StateRetained:
			found.Retained = append(found.Retained, e)
		case e.Volume != op.Volume:
			found.Others = append(found.Others, e)
		case found.Own == nil: // of two, the one that does not leave comes first
			found.Own = e
		}
	}
	return found, err
}

// All are the entries of other volumes.
func (o Occupancy) All() []*Entry { return slices.Concat(o.Others, o.Retained) }

// Gid is the group that belongs to the directory, as the ledger has it; 0 is none.
func (o Occupancy) Gid() int {
	if o.Own != nil && o.Own.GID != 0 {
		return o.Own.GID
	}
	for _, e := range o.All() {
		if e.GID != 0 {
			return e.GID
		}
	}
	return 0
}

// IsOnly reports whether the directory of a path holds nothing but the entry e now, whatever was read
// of it before.
func (l *Ledger) IsOnly(ctx context.Context, p string, e *Entry) (bool, error) {
	d, err := l.Tree.Dir(ctx, p)
	if err != nil {
		return false, err
	}
	names, err := d.Names(ctx)
	// A directory that was removed, and may be there again, is not the one that was read.
	return len(names) == 1 && names[0] == e.FileName(), fsroot.IgnoreMissing(err)
}

// node is one directory of the ledger, as it was read.
type node struct {
	mu      sync.Mutex        // a node's is locked before that of its parent
	entries map[string]*Entry // by file name; nil is one that was not read yet; guarded by mu
	folders map[string]bool   // all other names; what is no directory after all is an empty node; nil until read; guarded by mu
}

// change changes what was read, beside others.
func (n *node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *node) hasFolder(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.folders[name]
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
