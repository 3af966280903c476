package directories

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ListOwners gives the entries of the ledger, those of short paths first. It changes nothing, and takes no
// lock: what changes meanwhile may be missing.
func (f *FileSystem) ListOwners(ctx context.Context, emit func(requests.Owned) error) error {
	return f.eachOwner(ctx, func(l listedEntry) error { return emit(l.owned()) })
}

// listedEntry is an entry as a list finds it.
type listedEntry struct {
	path, fileName string
	entry          *entry // nil if it cannot be read
	written        time.Time
}

// owned describes an entry. What it contains is limited: whoever is root on the file system can write
// anything there.
func (l listedEntry) owned() requests.Owned {
	name := func(text string) string { return operations.Truncate(text, wellknown.MaxComponentBytes) }
	if l.entry == nil {
		return requests.Owned{Path: l.path, Volume: name(l.fileName), Unreadable: true}
	}
	e := l.entry
	return requests.Owned{
		Path: l.path, Volume: name(e.volume), Cluster: name(e.Cluster), Namespace: name(e.Namespace), NamespaceUID: name(e.NamespaceUID),
		Class: name(e.Class), Claim: name(e.Claim), ClaimUID: name(e.ClaimUID), GID: e.GID, Made: e.Made, Since: e.When,
		Leaving: e.state == stateLeaving, Retained: e.state == stateRetained, TakenFrom: name(e.TakenFrom),
	}
}

// eachOwner visits the entries of the ledger. Many directories are read at once: each is several round trips.
func (f *FileSystem) eachOwner(ctx context.Context, visit func(listedEntry) error) error {
	owners, err := f.state.enter(ctx, path.Base(wellknown.OwnersDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := newTree(owners, makePrivate)
	defer t.close()
	for level := []string{"/"}; len(level) > 0; {
		var next []string
		for piece := range slices.Chunk(level, maxOpen) {
			listed := make([]listedFolder, len(piece))
			err := inParallel(ctx, DefaultSweepWorkers, len(piece), func(i int) (err error) {
				listed[i], err = t.listFolder(ctx, piece[i])
				return err
			})
			if err != nil {
				return err
			}
			for _, folder := range listed {
				next = append(next, folder.below...)
				for _, l := range folder.entries {
					if err := visit(l); err != nil {
						return err
					}
				}
			}
			t.trim()
		}
		level = next
	}
	return nil
}

// listedFolder is a directory of the ledger.
type listedFolder struct {
	entries []listedEntry
	below   []string // paths
}

// listFolder leaves out what no mount Job has made: files, links, and paths that no volume can have.
func (t *tree) listFolder(ctx context.Context, p string) (listedFolder, error) {
	d, err := t.dir(ctx, p)
	if _, refused := asRefusal(err); refused || isGone(err) {
		return listedFolder{}, nil
	}
	if err != nil {
		return listedFolder{}, err
	}
	names, err := d.names(ctx)
	if isGone(err) {
		return listedFolder{}, nil
	}
	if err != nil {
		return listedFolder{}, err
	}
	slices.Sort(names)
	var folder listedFolder
	for _, name := range names {
		if !strings.HasPrefix(name, wellknown.OwnerPrefix) {
			if below := path.Join(p, name); len(below) <= wellknown.MaxPathBytes {
				folder.below = append(folder.below, below)
			}
			continue
		}
		data, written, err := d.read(name)
		if isGone(err) {
			continue
		}
		if err != nil {
			return listedFolder{}, err
		}
		e, err := parseEntry(name, data)
		if err != nil {
			e = nil
		}
		folder.entries = append(folder.entries, listedEntry{path: p, fileName: name, entry: e, written: written})
	}
	return folder, nil
}
