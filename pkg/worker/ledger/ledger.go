package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Ledger records which volumes own which path. Each of its directories and entries is read once in a
// batch, when it is needed first: the batch holds the lock.
//
// What is at a path and below it is changed by operations of one set only, so one at a time. Paths
// above are shared: any operation may read them and add a folder there, and none removes one while
// others run.
type Ledger struct {
	tmp  *fsroot.TmpDirs
	data *fsroot.Tree // the directories of volumes
	Tree *fsroot.Tree

	nodes sync.Map // *node by path

	mu       sync.Mutex
	unpruned map[string]bool // paths where something was dropped; guarded by mu
}

// NewLedger opens the ledger in a directory.
func NewLedger(tmp *fsroot.TmpDirs, data *fsroot.Tree, base *fsroot.Dir) *Ledger {
	return &Ledger{tmp: tmp, data: data, Tree: fsroot.NewTree(base, fsroot.MakePrivate), unpruned: map[string]bool{}}
}

// node reads the directory of a path; one that is not there is an empty node.
func (l *Ledger) node(ctx context.Context, p string) (*node, error) {
	known, _ := l.nodes.LoadOrStore(p, &node{})
	n := known.(*node) //nolint:errcheck // nothing else is put there
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folders != nil {
		return n, nil
	}
	entries, folders, err := l.list(ctx, p)
	if err != nil {
		return nil, err
	}
	n.entries, n.folders = entries, folders
	return n, nil
}

func (l *Ledger) list(ctx context.Context, p string) (entries map[string]*Entry, folders map[string]bool, err error) {
	entries, folders = map[string]*Entry{}, map[string]bool{}
	if p != "/" {
		parent, err := l.node(ctx, path.Dir(p))
		if err != nil || !parent.hasFolder(path.Base(p)) {
			return entries, folders, err
		}
	}
	d, err := l.Tree.Dir(ctx, p)
	if r, ok := fsroot.AsRefusal(err); ok && (r.Reason == operations.NotADirectory || r.Reason == operations.SymlinkInPath) {
		return entries, folders, nil // a file of an administrator, or one that NFS keeps for a client that has it open
	}
	if err != nil {
		return nil, nil, err
	}
	names, err := d.Names(ctx)
	for _, name := range names {
		if strings.HasPrefix(name, wellknown.OwnerPrefix) {
			entries[name] = nil
		} else {
			folders[name] = true
		}
	}
	return entries, folders, err
}

// open gives the directory of a path that has entries.
func (l *Ledger) open(ctx context.Context, p string) (*fsroot.Dir, *node, error) {
	d, err := l.Tree.Dir(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	n, err := l.node(ctx, p)
	return d, n, err
}

// Entries are those of a path, by state and then by volume.
func (l *Ledger) Entries(ctx context.Context, p string) ([]*Entry, error) {
	n, err := l.node(ctx, p)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := l.readEntries(ctx, p, n); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(n.entries), func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Volume, b.Volume))
	}), nil
}

// entriesAtOnce is how many owners of a path are read side by side: thousands may share a directory.
const entriesAtOnce = 64

// readEntries reads what was not read yet. The caller holds the node's mu.
func (l *Ledger) readEntries(ctx context.Context, p string, n *node) error {
	var names []string
	for name, known := range n.entries {
		if known == nil {
			names = append(names, name)
		}
	}
	entries := make([]*Entry, len(names))
	err := fsroot.InParallel(ctx, entriesAtOnce, len(names), func(i int) (err error) {
		if err := l.tmp.System.Before(ctx, "read "+names[i]); err != nil {
			return err
		}
		entries[i], err = l.read(ctx, p, names[i])
		return err
	})
	for i, name := range names {
		n.entries[name] = entries[i]
	}
	return err
}

func (l *Ledger) read(ctx context.Context, p, name string) (*Entry, error) {
	d, err := l.Tree.Dir(ctx, p)
	if err != nil {
		return nil, err
	}
	data, _, err := d.ReadSmall(name)
	if err != nil {
		return nil, err
	}
	e, err := ParseEntry(name, data)
	if err != nil {
		return nil, fsroot.Refuse(operations.LedgerDamaged, "the owner in %s cannot be read (%v): mend the file, or remove it if that volume is gone", fsroot.Quote(d.At(name)), err)
	}
	return e, nil
}

// first is the first entry of a path, or nil. It drops marks of retained data that a person has removed.
func (l *Ledger) first(ctx context.Context, p string) (*Entry, error) {
	all, err := l.Entries(ctx, p)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if all[0].State != StateRetained {
		return all[0], nil
	}
	exists, err := l.data.Exists(ctx, p)
	if err == nil && !exists {
		return nil, l.dropEntries(ctx, p, all...)
	}
	return all[0], err
}

// Above is an entry of a path strictly above p, or nil.
func (l *Ledger) Above(ctx context.Context, p string) (at string, e *Entry, err error) {
	for i := 1; i < len(p); i++ { // the highest path first, without the root
		if p[i] != '/' {
			continue
		}
		if e, err = l.first(ctx, p[:i]); err != nil || e != nil {
			return p[:i], e, err
		}
	}
	return "", nil, nil
}

// Below is an entry of a path strictly below p, or nil.
func (l *Ledger) Below(ctx context.Context, p string) (at string, e *Entry, err error) {
	_, err = l.walk(ctx, p, func(below string) (more bool, err error) {
		at = below
		e, err = l.first(ctx, below)
		return e == nil, err
	})
	return at, e, err
}

// walk visits the paths strictly below p, until visit wants no more.
func (l *Ledger) walk(ctx context.Context, p string, visit func(p string) (more bool, err error)) (more bool, err error) {
	n, err := l.node(ctx, p)
	if err != nil {
		return false, err
	}
	for _, name := range n.folderNames() {
		at := path.Join(p, name)
		more, err := visit(at)
		if err == nil && more {
			more, err = l.walk(ctx, at, visit)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// Write enters an owner, or what has changed about it.
func (l *Ledger) Write(ctx context.Context, p string, e *Entry) error {
	d, err := l.ensure(ctx, p)
	if err != nil {
		return err
	}
	if err := l.tmp.Write(ctx, d, e.FileName(), e); err != nil {
		return err
	}
	for at := p; at != "/"; at = path.Dir(at) {
		parent, err := l.node(ctx, path.Dir(at))
		if err != nil {
			return err
		}
		parent.change(func() { parent.folders[path.Base(at)] = true })
	}
	n, err := l.node(ctx, p)
	if err == nil {
		n.change(func() { n.entries[e.FileName()] = e })
	}
	return err
}

func (l *Ledger) ensure(ctx context.Context, p string) (*fsroot.Dir, error) {
	parent, err := l.node(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	if parent.hasFolder(path.Base(p)) {
		return l.Tree.Ensure(ctx, p)
	}
	return l.Tree.Add(ctx, p)
}

// SetState renames the file of an entry to that of another state.
func (l *Ledger) SetState(ctx context.Context, p string, e *Entry, state EntryState) error {
	return l.Rename(ctx, p, e, state, "")
}

// Rename renames the file of an entry to that of another state and bucket.
func (l *Ledger) Rename(ctx context.Context, p string, e *Entry, state EntryState, bucket string) error {
	d, n, err := l.open(ctx, p)
	if err != nil {
		return err
	}
	changed := *e
	changed.State, changed.Bucket = state, bucket
	old := e.FileName()
	if err := l.tmp.System.Before(ctx, "rename "+d.At(old)); err != nil {
		return err
	}
	if err := l.tmp.Lock.Check(); err != nil {
		return err
	}
	if err := d.Rename(old, changed.FileName()); err != nil {
		return fmt.Errorf("renaming the owner %s to %s: %w", e, fsroot.Quote(changed.FileName()), err)
	}
	n.change(func() {
		delete(n.entries, old)
		*e = changed
		n.entries[e.FileName()] = e
	})
	return nil
}

// Drop removes entries of an operation's path, and its directory in the ledger if that is empty then.
func (l *Ledger) Drop(ctx context.Context, p string, entries ...*Entry) error {
	if err := l.dropEntries(ctx, p, entries...); err != nil {
		return err
	}
	return l.PruneOwn(ctx, p)
}

func (l *Ledger) dropEntries(ctx context.Context, p string, entries ...*Entry) error {
	d, n, err := l.open(ctx, p)
	if err != nil {
		return err
	}
	l.pruneLater(p)
	if err := l.tmp.Lock.Check(); err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.RemoveEntry(ctx, e.FileName()); err != nil {
			return err
		}
		n.change(func() { delete(n.entries, e.FileName()) })
	}
	return nil
}

// PruneOwn removes the directory of an operation's path if it is empty. Those above, which other operations may be
// about to use, are removed at the end of the phase.
func (l *Ledger) PruneOwn(ctx context.Context, p string) error {
	l.pruneLater(p)
	return l.Prune(ctx, p, p)
}

func (l *Ledger) pruneLater(p string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unpruned[p] = true
}

// TakeUnpruned gives the paths where something was dropped since the last call.
func (l *Ledger) TakeUnpruned() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths := slices.Sorted(maps.Keys(l.unpruned))
	clear(l.unpruned)
	return paths
}

// Prune removes the directory of a path, and those above it up to top, as far as they are empty.
func (l *Ledger) Prune(ctx context.Context, p, top string) error {
	for ; p != "/" && fsroot.IsAtOrBelow(p, top); p = path.Dir(p) {
		n, err := l.node(ctx, p)
		if err != nil || !n.isEmpty() {
			return err
		}
		parent, err := l.node(ctx, path.Dir(p))
		if err != nil {
			return err
		}
		if !parent.hasFolder(path.Base(p)) {
			continue // gone already
		}
		d, err := l.Tree.Dir(ctx, path.Dir(p))
		if err != nil {
			return err
		}
		l.Tree.Forget(p)
		err = d.RemoveEntry(ctx, path.Base(p))
		if errors.Is(err, fs.ErrExist) {
			return nil // an administrator keeps a file there, and it does no harm
		}
		if err != nil {
			return err
		}
		l.nodes.Delete(p)
		parent.change(func() { delete(parent.folders, path.Base(p)) })
	}
	return nil
}

// Forget makes the ledger read everything again. No operation may run, and no handle be open.
func (l *Ledger) Forget() { l.nodes.Clear() }
