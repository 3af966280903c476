package directories

import (
	"context"
	"errors"
	"fmt"
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

// ReleaseCluster releases the owners of a cluster that is gone: each entry becomes the mark that keeps its
// data, or is dropped if there is none, as a release of the manager does. So no other owner inherits the right to
// remove a directory. emit gets each owner with what was, or would be, done.
func (f *FileSystem) ReleaseCluster(ctx context.Context, release requests.Release, emit func(requests.Owned) error) error {
	var found []listedEntry
	err := f.checkGone(ctx, requests.Lost{Cluster: release.Cluster, Force: release.Force}, func(l listedEntry) {
		if l.entry.state != stateRetained {
			found = append(found, l)
		}
	})
	if err != nil {
		return err
	}
	return f.releaseAll(ctx, release, found, emit)
}

// CheckGone refuses a cluster that has left a mark not long ago.
func (f *FileSystem) CheckGone(ctx context.Context, lost requests.Lost) error {
	return f.checkGone(ctx, lost, func(listedEntry) {})
}

// checkGone also visits the cluster's entries.
func (f *FileSystem) checkGone(ctx context.Context, lost requests.Lost, visit func(listedEntry)) error {
	newest, of := time.Time{}, ""
	err := f.eachOwner(ctx, func(l listedEntry) error {
		if l.entry == nil || l.entry.Cluster != lost.Cluster {
			return nil
		}
		if l.written.After(newest) {
			newest, of = l.written, "an owner of "+quote(l.path)
		}
		visit(l)
		return nil
	})
	if err != nil {
		return err
	}
	err = f.ListTrash(ctx, func(t requests.Trashed) error {
		if t.Cluster == lost.Cluster && t.Deleted.After(newest) {
			newest, of = t.Deleted, "the deletion of "+quote(t.Path)
		}
		return nil
	})
	if err != nil || lost.Force || newest.IsZero() {
		return err
	}
	now, err := f.serverNow(ctx)
	if err != nil {
		return err
	}
	if age := now.Sub(newest); age < requests.FreshMark {
		return refuse(operations.OwnedByOtherCluster, "cluster %s seems to live: it recorded %s %s ago, less than %s: make sure that it is gone, and use --force",
			quote(lost.Cluster), of, age.Truncate(time.Second), requests.FreshMark)
	}
	return nil
}

func (f *FileSystem) releaseAll(ctx context.Context, release requests.Release, found []listedEntry, emit func(requests.Owned) error) error {
	for piece := range slices.Chunk(found, wellknown.DefaultMountJobBatch) {
		results := make([]operations.Result, len(piece))
		if !release.DryRun {
			ops := make([]operations.Operation, len(piece))
			for i, l := range piece {
				ops[i] = operations.Operation{Kind: operations.Release, Owner: l.entry.owner(), Path: l.path}
			}
			results = f.Run(ctx, ops, nil).Results
		}
		for i, l := range piece {
			owned := l.owned()
			owned.Released, owned.Problem = results[i].State == operations.Done, operations.Truncate(results[i].Message, maxProblemBytes)
			if err := emit(owned); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("releasing the owners of a cluster: %w", &stopError{context.Cause(ctx)})
		}
	}
	return nil
}

// maxProblemBytes is as much of a message as an answer has for each owner.
const maxProblemBytes = 1024
