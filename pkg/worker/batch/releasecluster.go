package batch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// ReleaseCluster releases the owners of a cluster that is gone: each entry becomes the mark that keeps its
// data, or is dropped if there is none, as a release of the manager does. So no other owner inherits the right to
// remove a directory. emit gets each owner with what was, or would be, done.
func ReleaseCluster(ctx context.Context, f *fsroot.FileSystem, release requests.Release, emit func(requests.Owned) error) error {
	var found []ledger.ListedEntry
	err := checkGone(ctx, f, requests.Lost{Cluster: release.Cluster, Force: release.Force}, func(l ledger.ListedEntry) {
		if l.Entry.State != ledger.StateRetained {
			found = append(found, l)
		}
	})
	if err != nil {
		return err
	}
	return releaseAll(ctx, f, release, found, emit)
}

// CheckGone refuses a cluster that has left a mark not long ago.
func CheckGone(ctx context.Context, f *fsroot.FileSystem, lost requests.Lost) error {
	return checkGone(ctx, f, lost, func(ledger.ListedEntry) {})
}

// checkGone also visits the cluster's entries.
func checkGone(ctx context.Context, f *fsroot.FileSystem, lost requests.Lost, visit func(ledger.ListedEntry)) error {
	newest, of := time.Time{}, ""
	err := ledger.EachOwner(ctx, f, func(l ledger.ListedEntry) error {
		if l.Entry == nil || l.Entry.Cluster != lost.Cluster {
			return nil
		}
		if l.Written.After(newest) {
			newest, of = l.Written, "an owner of "+fsroot.Quote(l.Path)
		}
		visit(l)
		return nil
	})
	if err != nil {
		return err
	}
	err = trash.List(ctx, f, func(t requests.Trashed) error {
		if t.Cluster == lost.Cluster && t.Deleted.After(newest) {
			newest, of = t.Deleted, "the deletion of "+fsroot.Quote(t.Path)
		}
		return nil
	})
	if err != nil || lost.Force || newest.IsZero() {
		return err
	}
	now, err := f.ServerNow(ctx)
	if err != nil {
		return err
	}
	if age := now.Sub(newest); age < requests.FreshMark {
		return fsroot.Refuse(operations.OwnedByOtherCluster, "cluster %s seems to live: it recorded %s %s ago, less than %s: make sure that it is gone, and use --force",
			fsroot.Quote(lost.Cluster), of, age.Truncate(time.Second), requests.FreshMark)
	}
	return nil
}

func releaseAll(ctx context.Context, f *fsroot.FileSystem, release requests.Release, found []ledger.ListedEntry, emit func(requests.Owned) error) error {
	for piece := range slices.Chunk(found, wellknown.DefaultMountJobBatch) {
		results := make([]operations.Result, len(piece))
		if !release.DryRun {
			ops := make([]operations.Operation, len(piece))
			for i, l := range piece {
				ops[i] = operations.Operation{Kind: operations.Release, Owner: l.Entry.Owner(), Path: l.Path}
			}
			results = Run(ctx, f, ops, nil).Results
		}
		for i, l := range piece {
			owned := l.Owned()
			owned.Released, owned.Problem = results[i].State == operations.Done, operations.Truncate(results[i].Message, fsroot.MaxProblemBytes)
			if err := emit(owned); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("releasing the owners of a cluster: %w", &fsroot.StopError{Cause: context.Cause(ctx)})
		}
	}
	return nil
}
