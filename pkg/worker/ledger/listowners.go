package ledger

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
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// ListOwners gives the entries of the ledger, those of short paths first. It changes nothing, and takes no
// lock: what changes meanwhile may be missing.
func ListOwners(ctx context.Context, f *fsroot.FileSystem, emit func(requests.Owned) error) error {
	return EachOwner(ctx, f, func(l ListedEntry) error { return emit(l.Owned()) })
}

// ListedEntry is an entry as a list finds it.
type ListedEntry struct {
	Path, fileName string
	Entry          *Entry // nil if it cannot be read
	Written        time.Time
}

// Owned describes an entry. What it contains is limited: whoever is root on the file system can write
// anything there.
func (l ListedEntry) Owned() requests.Owned {
	name := func(text string) string { return operations.Truncate(text, wellknown.MaxComponentBytes) }
	if l.Entry == nil {
		return requests.Owned{Path: l.Path, Volume: name(l.fileName), Unreadable: true}
	}
	e := l.Entry
	return requests.Owned{
		Path: l.Path, Volume: name(e.Volume), Cluster: name(e.Cluster), Namespace: name(e.Namespace), NamespaceUID: name(e.NamespaceUID),
		Class: name(e.Class), Claim: name(e.Claim), ClaimUID: name(e.ClaimUID), GID: e.GID, Made: e.Made, Since: e.When,
		Leaving: e.State == StateLeaving, Retained: e.State == StateRetained, TakenFrom: name(e.TakenFrom),
	}
}

// EachOwner visits the entries of the ledger. Many directories are read at once: each is several round trips.
func EachOwner(ctx context.Context, f *fsroot.FileSystem, visit func(ListedEntry) error) error {
	owners, err := f.State.Enter(ctx, path.Base(wellknown.OwnersDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := fsroot.NewTree(owners, fsroot.MakePrivate)
	defer t.Close()
	for level := []string{"/"}; len(level) > 0; {
		var next []string
		for piece := range slices.Chunk(level, fsroot.MaxOpen) {
			listed := make([]listedFolder, len(piece))
			err := fsroot.InParallel(ctx, fsroot.DefaultSweepWorkers, len(piece), func(i int) (err error) {
				listed[i], err = listFolder(ctx, t, piece[i])
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
			t.Trim()
		}
		level = next
	}
	return nil
}

// listedFolder is a directory of the ledger.
type listedFolder struct {
	entries []ListedEntry
	below   []string // paths
}

// listFolder leaves out what no mount Job has made: files, links, and paths that no volume can have.
func listFolder(ctx context.Context, t *fsroot.Tree, p string) (listedFolder, error) {
	d, err := t.Dir(ctx, p)
	if _, refused := fsroot.AsRefusal(err); refused || fsroot.IsGone(err) {
		return listedFolder{}, nil
	}
	if err != nil {
		return listedFolder{}, err
	}
	names, err := d.Names(ctx)
	if fsroot.IsGone(err) {
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
		data, written, err := d.ReadSmall(name)
		if fsroot.IsGone(err) {
			continue
		}
		if err != nil {
			return listedFolder{}, err
		}
		e, err := ParseEntry(name, data)
		if err != nil {
			e = nil
		}
		folder.entries = append(folder.entries, ListedEntry{Path: p, fileName: name, Entry: e, Written: written})
	}
	return folder, nil
}
