package directories

import (
	"context"
	"io/fs"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// occupancy is what an operation finds at its path: the entries of the ledger, and the directory.
type occupancy struct {
	own      *entry      // of the operation's volume; nil if it has none
	leaving  *entry      // of its cleanup that has begun: own, or beside own if a setup has died; nil if there is none
	others   []*entry    // of other owners; those that leave come last
	retained []*entry    // marks of retained data, which are no owners any more
	info     fs.FileInfo // of the directory; nil if there is none, or if only owners were read
}

// owners reads the entries of the operation's path.
func (l *ledger) owners(ctx context.Context, op operations.Operation) (occupancy, error) {
	entries, err := l.entries(ctx, op.Path)
	found := occupancy{}
	for _, e := range entries {
		if e.volume == op.Volume && e.state == stateLeaving {
			found.leaving = e
		}
		switch {
		case e.state == stateRetained:
			found.retained = append(found.retained, e)
		case e.volume != op.Volume:
			found.others = append(found.others, e)
		case found.own == nil: // of two, the one that does not leave comes first
			found.own = e
		}
	}
	return found, err
}

// all are the entries of other volumes.
func (o occupancy) all() []*entry { return slices.Concat(o.others, o.retained) }

// gid is the group that belongs to the directory, as the ledger has it; 0 is none.
func (o occupancy) gid() int {
	if o.own != nil && o.own.GID != 0 {
		return o.own.GID
	}
	for _, e := range o.all() {
		if e.GID != 0 {
			return e.GID
		}
	}
	return 0
}

// isOnly reports whether the directory of a path holds nothing but the entry e now, whatever was read
// of it before.
func (l *ledger) isOnly(ctx context.Context, p string, e *entry) (bool, error) {
	d, err := l.tree.dir(ctx, p)
	if err != nil {
		return false, err
	}
	names, err := d.names(ctx)
	// A directory that was removed, and may be there again, is not the one that was read.
	return len(names) == 1 && names[0] == e.fileName(), ignoreMissing(err)
}
