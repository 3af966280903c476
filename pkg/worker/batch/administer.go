package batch

import (
	"context"
	"fmt"
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
func ReleaseCluster(ctx context.Context, f *fsroot.FileSystem, release requests.Release, options Options, emit func(requests.Owned) error) error {
	var found []ledger.ListedEntry
	err := CheckGone(ctx, f, requests.Lost{Cluster: release.Cluster, Force: release.Force}, func(l ledger.ListedEntry) {
		if l.Entry.State != ledger.StateRetained {
			found = append(found, l)
		}
	})
	if err != nil {
		return err
	}
	ops := make([]operations.Operation, len(found))
	for i, l := range found {
		ops[i] = operations.Operation{Kind: operations.Release, Owner: l.Entry.Owner(), Path: l.Path}
	}
	run := func(piece []operations.Operation) []operations.Result { return Run(ctx, f, piece, options).Results }
	if release.DryRun {
		run = func(piece []operations.Operation) []operations.Result { return make([]operations.Result, len(piece)) }
	}
	return inPieces(ctx, ops, run, func(i int, done bool, problem string) error {
		owned := found[i].Owned()
		owned.Released, owned.Problem = done, problem
		return emit(owned)
	})
}

// CheckGone refuses a cluster that has left a mark not long ago. It visits the cluster's entries, unless visit is nil.
func CheckGone(ctx context.Context, f *fsroot.FileSystem, lost requests.Lost, visit func(ledger.ListedEntry)) error {
	newest, of := time.Time{}, ""
	err := ledger.EachOwner(ctx, f, func(l ledger.ListedEntry) error {
		if l.Entry == nil || l.Entry.Cluster != lost.Cluster {
			return nil
		}
		if l.Written.After(newest) {
			newest, of = l.Written, "an owner of "+fsroot.Quote(l.Path)
		}
		if visit != nil {
			visit(l)
		}
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

// AdoptVolumes makes volumes the owners of directories that exist, as the setup of an adopted volume does. It
// takes over nothing of a cluster that seems to live. A volume that is refused does not keep the others from
// their directories; emit gets what became of each.
func AdoptVolumes(ctx context.Context, f *fsroot.FileSystem, adoption requests.Adoption, options Options, emit func(requests.Adopted) error) error {
	if lost := adoption.Lost; lost != nil && lost.Cluster != adoption.Cluster {
		if err := CheckGone(ctx, f, *lost, nil); err != nil {
			return err
		}
	}
	ops := make([]operations.Operation, len(adoption.Volumes))
	for i, v := range adoption.Volumes {
		ops[i] = adoption.Operation(v)
	}
	run := func(piece []operations.Operation) []operations.Result { return Run(ctx, f, piece, options).Results }
	return inPieces(ctx, ops, run, func(i int, _ bool, problem string) error {
		return emit(requests.Adopted{Volume: adoption.Volumes[i].Name, Path: adoption.Volumes[i].Path, Problem: problem})
	})
}

// inPieces runs operations in batches, between which other Jobs may have the lock, and emits how each has ended.
func inPieces(ctx context.Context, ops []operations.Operation, run func([]operations.Operation) []operations.Result, emit func(i int, done bool, problem string) error) error {
	for first := 0; first < len(ops); first += wellknown.DefaultMountJobBatch {
		for i, result := range run(ops[first:min(first+wellknown.DefaultMountJobBatch, len(ops))]) {
			done, problem := result.State == operations.Done, ""
			if !done {
				problem = operations.Truncate(result.Message, fsroot.MaxProblemBytes)
			}
			if err := emit(first+i, done, problem); err != nil {
				return err
			}
		}
		if err := fsroot.Stopped(ctx); err != nil {
			return fmt.Errorf("changing the owners of directories: %w", err)
		}
	}
	return nil
}
