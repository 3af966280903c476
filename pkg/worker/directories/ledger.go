package directories

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
)

// ledger records which volumes own which path. Each of its directories and entries is read once in a
// batch, when it is needed first: the batch holds the lock.
//
// What is at a path and below it is changed by operations of one set only, so one at a time. Paths
// above are shared: any operation may read them and add a folder there, and none removes one while
// others run.
type ledger struct {
	tmp  *tmpDirs
	data *tree // the directories of volumes
	tree *tree

	mu       sync.Mutex
	nodes    map[string]*node // by path; guarded by mu
	unpruned map[string]bool  // paths where something was dropped; guarded by mu
	outdated bool             // another Job has changed the ledger; guarded by mu
}

func newLedger(tmp *tmpDirs, data *tree, base *dir) *ledger {
	return &ledger{tmp: tmp, data: data, tree: newTree(base, makePrivate), nodes: map[string]*node{}, unpruned: map[string]bool{}}
}

// node reads the directory of a path; one that is not there is an empty node.
func (l *ledger) node(ctx context.Context, p string) (*node, error) {
	n := l.unreadNode(p)
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

func (l *ledger) unreadNode(p string) *node {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[p] == nil {
		l.nodes[p] = &node{}
	}
	return l.nodes[p]
}

func (l *ledger) list(ctx context.Context, p string) (entries map[string]*entry, folders map[string]bool, err error) {
	entries, folders = map[string]*entry{}, map[string]bool{}
	if p != "/" {
		parent, err := l.node(ctx, path.Dir(p))
		if err != nil || !parent.hasFolder(path.Base(p)) {
			return entries, folders, err
		}
	}
	d, err := l.tree.dir(ctx, p)
	if r, ok := asRefusal(err); ok && (r.Reason == operations.NotADirectory || r.Reason == operations.SymlinkInPath) {
		return entries, folders, nil // a file of an administrator, or one that NFS keeps for a client that has it open
	}
	if err != nil {
		return nil, nil, err
	}
	names, err := d.names(ctx)
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
func (l *ledger) open(ctx context.Context, p string) (*dir, *node, error) {
	d, err := l.tree.dir(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	n, err := l.node(ctx, p)
	return d, n, err
}

// entries are those of a path, by state and then by volume.
func (l *ledger) entries(ctx context.Context, p string) ([]*entry, error) {
	n, err := l.node(ctx, p)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := l.readEntries(ctx, p, n); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(n.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.volume, b.volume))
	}), nil
}

// entriesAtOnce is how many owners of a path are read side by side: thousands may share a directory.
const entriesAtOnce = 64

// readEntries reads what was not read yet. The caller holds the node's mu.
func (l *ledger) readEntries(ctx context.Context, p string, n *node) error {
	var names []string
	for name, known := range n.entries {
		if known == nil {
			names = append(names, name)
		}
	}
	entries := make([]*entry, len(names))
	err := inParallel(ctx, entriesAtOnce, len(names), func(i int) (err error) {
		if err := l.tmp.fs.before(ctx, "read "+names[i]); err != nil {
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

func (l *ledger) read(ctx context.Context, p, name string) (*entry, error) {
	d, err := l.tree.dir(ctx, p)
	if err != nil {
		return nil, err
	}
	data, _, err := d.read(name)
	if err != nil {
		return nil, err
	}
	e, err := parseEntry(name, data)
	if err != nil {
		return nil, refuse(operations.LedgerDamaged, "the owner in %s cannot be read (%v): mend the file, or remove it if that volume is gone", quote(d.at(name)), err)
	}
	return e, nil
}

// first is the first entry of a path, or nil. Marks of retained data that a person has removed are
// dropped.
func (l *ledger) first(ctx context.Context, p string) (*entry, error) {
	n, err := l.node(ctx, p)
	if err != nil || !n.hasEntries() {
		return nil, err
	}
	all, err := l.entries(ctx, p)
	if err != nil || len(all) == 0 { // another operation may have dropped them
		return nil, err
	}
	if all[0].state != stateRetained {
		return all[0], nil
	}
	exists, err := l.data.exists(ctx, p)
	if err == nil && !exists {
		return nil, l.dropEntries(ctx, p, all...)
	}
	return all[0], err
}

// above is an entry of a path strictly above p, or nil.
func (l *ledger) above(ctx context.Context, p string) (at string, e *entry, err error) {
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

// below is an entry of a path strictly below p, or nil.
func (l *ledger) below(ctx context.Context, p string) (at string, e *entry, err error) {
	_, err = l.walk(ctx, p, func(below string) (more bool, err error) {
		at = below
		e, err = l.first(ctx, below)
		return e == nil, err
	})
	return at, e, err
}

// walk visits the paths strictly below p, until visit wants no more.
func (l *ledger) walk(ctx context.Context, p string, visit func(p string) (more bool, err error)) (more bool, err error) {
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

// write enters an owner, or what has changed about it.
func (l *ledger) write(ctx context.Context, p string, e *entry) error {
	d, err := l.ensure(ctx, p)
	if err != nil {
		return err
	}
	if err := l.tmp.write(ctx, d, e.fileName(), e); err != nil {
		return err
	}
	for at := p; at != "/"; at = path.Dir(at) {
		parent, err := l.node(ctx, path.Dir(at))
		if err != nil {
			return err
		}
		parent.addFolder(path.Base(at))
	}
	n, err := l.node(ctx, p)
	if err == nil {
		n.put(e)
	}
	return err
}

func (l *ledger) ensure(ctx context.Context, p string) (*dir, error) {
	parent, err := l.node(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	if parent.hasFolder(path.Base(p)) {
		return l.tree.ensure(ctx, p)
	}
	return l.tree.add(ctx, p)
}

// setState renames the file of an entry to that of another state.
func (l *ledger) setState(ctx context.Context, p string, e *entry, state entryState) error {
	return l.rename(ctx, p, e, state, "")
}

func (l *ledger) rename(ctx context.Context, p string, e *entry, state entryState, bucket string) error {
	d, n, err := l.open(ctx, p)
	if err != nil {
		return err
	}
	changed := *e
	changed.state, changed.bucket = state, bucket
	old := e.fileName()
	if err := l.tmp.fs.before(ctx, "rename "+d.at(old)); err != nil {
		return err
	}
	if err := l.tmp.lock.check(); err != nil {
		return err
	}
	if err := d.Rename(old, changed.fileName()); err != nil {
		return fmt.Errorf("renaming the owner %s to %s: %w", e, quote(changed.fileName()), err)
	}
	n.forgetEntry(old)
	*e = changed
	n.put(e)
	return nil
}

// drop removes entries of an operation's path, and its directory in the ledger if it holds nothing any
// more.
func (l *ledger) drop(ctx context.Context, p string, entries ...*entry) error {
	if err := l.dropEntries(ctx, p, entries...); err != nil {
		return err
	}
	return l.pruneOwn(ctx, p)
}

func (l *ledger) dropEntries(ctx context.Context, p string, entries ...*entry) error {
	d, n, err := l.open(ctx, p)
	if err != nil {
		return err
	}
	l.pruneLater(p)
	if err := l.tmp.lock.check(); err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.remove(ctx, e.fileName()); err != nil {
			return err
		}
		n.forgetEntry(e.fileName())
	}
	return nil
}

// pruneOwn removes the directory of an operation's path if it is empty, so that the ledger below a path
// stays small. Those above are removed at the end of the phase: other operations may be about to use
// them.
func (l *ledger) pruneOwn(ctx context.Context, p string) error {
	l.pruneLater(p)
	return l.prune(ctx, p, p)
}

func (l *ledger) pruneLater(p string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unpruned[p] = true
}

// takeUnpruned gives the paths where something was dropped since the last call.
func (l *ledger) takeUnpruned() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths := slices.Sorted(maps.Keys(l.unpruned))
	clear(l.unpruned)
	return paths
}

// prune removes the directory of a path, and those above it up to top, as far as they are empty.
func (l *ledger) prune(ctx context.Context, p, top string) error {
	for ; p != "/" && isAtOrBelow(p, top); p = path.Dir(p) {
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
		d, err := l.tree.dir(ctx, path.Dir(p))
		if err != nil {
			return err
		}
		l.tree.forget(p)
		err = d.remove(ctx, path.Base(p))
		if errors.Is(err, fs.ErrExist) {
			return nil // an administrator keeps a file there, and it does no harm
		}
		if err != nil {
			return err
		}
		l.forgetNode(p)
		parent.removeFolder(path.Base(p))
	}
	return nil
}

func (l *ledger) forgetNode(p string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, p)
}

// forget makes the ledger read everything again. No operation may run.
func (l *ledger) forget() {
	l.tree.forget("/")
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.nodes)
	l.outdated = false
}

// distrust has everything read again after this operation: another Job has changed the ledger.
func (l *ledger) distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outdated = true
}

func (l *ledger) isOutdated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outdated
}
