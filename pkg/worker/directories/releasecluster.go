package directories

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

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
