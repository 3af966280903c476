package directories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// ledger knows who owns which path. Directories of it are read when they are asked for, and once
// in a batch; the entries in them likewise.
type ledger struct {
	batch *batch
	tree  *tree
	nodes map[string]*node // by path
}

// node is one directory of the ledger.
type node struct {
	entries map[string]*entry // by file name; nil is one that was not read yet
	folders map[string]bool   // all other names; what is no directory after all is an empty node
}

func newLedger(b *batch, owners *os.Root) *ledger {
	l := &ledger{batch: b, nodes: map[string]*node{}}
	l.tree = &tree{fs: b.fs, base: owners, where: wellknown.OwnersDirectory, make: l.makePrivate, open: map[string]*os.Root{}}
	return l
}

func (l *ledger) makePrivate(ctx context.Context, parent *os.Root, name, where string) error {
	if err := l.batch.fs.beforeGrowing(ctx, "make "+where); err != nil {
		return err
	}
	if err := parent.Mkdir(name, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", where, err)
	}
	return nil
}

// node reads the directory of a path; one that is not there is an empty node.
func (l *ledger) node(ctx context.Context, p string) (*node, error) {
	if n, ok := l.nodes[p]; ok {
		return n, nil
	}
	n, err := l.load(ctx, p)
	if err != nil {
		return nil, err
	}
	l.nodes[p] = n
	return n, nil
}

func (l *ledger) load(ctx context.Context, p string) (*node, error) {
	n := &node{entries: map[string]*entry{}, folders: map[string]bool{}}
	if p != "/" {
		parent, err := l.node(ctx, path.Dir(p))
		if err != nil || !parent.folders[path.Base(p)] {
			return n, err
		}
	}
	folder, err := l.tree.folder(ctx, p)
	if isNoDirectory(err) {
		return n, nil // a file that is not ours, or one that NFS keeps for who has it open
	}
	if err != nil {
		return nil, err
	}
	listed, err := names(folder, l.tree.at(p))
	for _, name := range listed {
		if strings.HasPrefix(name, wellknown.OwnerPrefix) {
			n.entries[name] = nil
		} else {
			n.folders[name] = true
		}
	}
	return n, err
}

func isNoDirectory(err error) bool {
	refusal := (*failure)(nil)
	return errors.As(err, &refusal) && (refusal.Reason == operations.NotADirectory || refusal.Reason == operations.SymlinkInPath)
}

// entries are those of a path, by volume: first the owners that stay, then those that leave, then
// what was retained.
func (l *ledger) entries(ctx context.Context, p string) ([]*entry, error) {
	n, err := l.node(ctx, p)
	if err != nil {
		return nil, err
	}
	for name, known := range n.entries {
		if known != nil {
			continue
		}
		if n.entries[name], err = l.read(ctx, p, name); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(n.entries), func(a, b *entry) int {
		return cmp.Or(a.rank()-b.rank(), strings.Compare(a.volume, b.volume))
	}), nil
}

// alone says that a path has no owner but one, by what its directory holds now, whatever was read
// of it before.
func (l *ledger) alone(ctx context.Context, p string, e *entry) (bool, error) {
	folder, err := l.tree.folder(ctx, p)
	if err != nil {
		return false, err
	}
	listed, err := names(folder, l.tree.at(p))
	if errors.Is(err, fs.ErrNotExist) { // it was removed, and may be there again
		return false, nil
	}
	return len(listed) == 1 && listed[0] == e.fileName(), err
}

func (l *ledger) read(ctx context.Context, p, name string) (*entry, error) {
	folder, err := l.tree.folder(ctx, p)
	if err != nil {
		return nil, err
	}
	where := l.tree.at(child(p, name))
	data, err := readFile(folder, name, where)
	if err != nil {
		return nil, err
	}
	e, err := parseEntry(name, data)
	if err != nil {
		return nil, refuse(operations.LedgerDamaged, "the owner in %s cannot be read (%v): mend the file, or remove it if that volume is gone", quote(where), err)
	}
	return e, nil
}

// write enters an owner, or what has changed about it.
func (l *ledger) write(ctx context.Context, p string, e *entry) error {
	data, err := encode(e)
	if err != nil {
		return fmt.Errorf("writing the owner %s: %w", e, err)
	}
	folder, err := l.tree.ensure(ctx, p)
	if err != nil {
		return err
	}
	if err := l.batch.writeFile(ctx, folder, e.fileName(), l.tree.at(child(p, e.fileName())), data); err != nil {
		return err
	}
	return l.enter(ctx, p, e)
}

// enter repeats in memory what was written.
func (l *ledger) enter(ctx context.Context, p string, e *entry) error {
	for at := p; at != "/"; at = path.Dir(at) {
		parent, err := l.node(ctx, path.Dir(at))
		if err != nil {
			return err
		}
		parent.folders[path.Base(at)] = true
	}
	n, err := l.node(ctx, p)
	if err == nil {
		n.entries[e.fileName()] = e
	}
	return err
}

// leave marks an owner whose cleanup has begun.
func (l *ledger) leave(ctx context.Context, p string, e *entry) error {
	leaving := *e
	leaving.leaving = true
	return l.rename(ctx, "leave", p, e, leaving)
}

// retain makes of an owner whose volume and claim are gone the mark of its retained data.
func (l *ledger) retain(ctx context.Context, p string, e *entry) error {
	retained := *e
	retained.leaving, retained.retained = false, true
	return l.rename(ctx, "retain", p, e, retained)
}

// rename gives an entry the name of another state.
func (l *ledger) rename(ctx context.Context, step, p string, e *entry, to entry) error {
	folder, err := l.tree.folder(ctx, p)
	if err != nil {
		return err
	}
	n, err := l.node(ctx, p)
	if err != nil {
		return err
	}
	old := e.fileName()
	if err := l.batch.fs.before(ctx, step+" "+l.tree.at(child(p, old))); err != nil {
		return err
	}
	if err := folder.Rename(old, to.fileName()); err != nil {
		return fmt.Errorf("renaming the owner %s to %s: %w", e, quote(to.fileName()), err)
	}
	delete(n.entries, old)
	*e = to
	n.entries[e.fileName()] = e
	return nil
}

// drop removes an owner, and directories of the ledger that hold nothing any more.
func (l *ledger) drop(ctx context.Context, p string, e *entry) error {
	folder, err := l.tree.folder(ctx, p)
	if err != nil {
		return err
	}
	n, err := l.node(ctx, p)
	if err != nil {
		return err
	}
	if err := l.batch.fs.before(ctx, "drop "+l.tree.at(child(p, e.fileName()))); err != nil {
		return err
	}
	if err := folder.Remove(e.fileName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dropping the owner %s: %w", e, err)
	}
	delete(n.entries, e.fileName())
	return l.prune(ctx, p)
}

// dropAll removes several entries of a path.
func (l *ledger) dropAll(ctx context.Context, p string, entries []*entry) error {
	for _, e := range entries {
		if err := l.drop(ctx, p, e); err != nil {
			return err
		}
	}
	return nil
}

// prune removes the directory of a path, and those above it, as far as they are empty. Looking
// for owners below a path stays cheap that way.
func (l *ledger) prune(ctx context.Context, p string) error {
	for ; p != "/"; p = path.Dir(p) {
		n, err := l.node(ctx, p)
		if err != nil || len(n.entries) > 0 || len(n.folders) > 0 {
			return err
		}
		above, err := l.node(ctx, path.Dir(p))
		if err != nil {
			return err
		}
		if !above.folders[path.Base(p)] {
			continue // gone already
		}
		parent, err := l.tree.folder(ctx, path.Dir(p))
		if err != nil {
			return err
		}
		if err := l.batch.fs.before(ctx, "prune "+l.tree.at(p)); err != nil {
			return err
		}
		l.tree.forget(p)
		err = ignoreMissing(parent.Remove(path.Base(p)))
		if errors.Is(err, fs.ErrExist) {
			return nil // somebody keeps a file of theirs there; it is in nobody's way
		}
		if err != nil {
			return fmt.Errorf("pruning %s: %w", l.tree.at(p), err)
		}
		delete(l.nodes, p)
		delete(above.folders, path.Base(p))
	}
	return nil
}

// forget makes the next question read everything again.
func (l *ledger) forget() {
	l.tree.forget("/")
	clear(l.nodes)
}

func (l *ledger) close() {
	l.tree.forget("/")
	closeRoot(l.tree.base)
}
