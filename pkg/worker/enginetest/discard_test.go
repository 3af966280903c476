package enginetest

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

// meanwhile plays a Job that has the lock because the server took it from another one.
func (w *fixture) meanwhile(ops ...operations.Operation) error {
	f := w.open(nil)
	defer f.Close()
	b, err := batch.Begin(context.Background(), f, nil)
	if err != nil {
		return err
	}
	defer b.End()
	for _, op := range ops {
		if result := b.Do(context.Background(), op); result.State != operations.Done {
			return fmt.Errorf("%s of %s: %+v", op.Kind, op.Path, result)
		}
	}
	return nil
}

// A node that is cut off in the middle of its move loses the lock, and the move takes place later,
// when another volume owns the directory.
func TestLateMoveIsUndone(t *testing.T) {
	a, c := owner("c1", "ns", 1), owner("c2", "ns", 1)
	join := setupOf(c, "/ns/data")
	join.ShareAcrossClusters = true
	late := func(w *fixture, ops ...operations.Operation) func(string) error {
		return func(step string) error {
			if step != "trash /ns/data" {
				return nil
			}
			return w.meanwhile(ops...)
		}
	}
	t.Run("another cluster came", func(t *testing.T) {
		w := newFixture(t)
		w.done(setupOf(a, "/ns/data"))
		w.write("/ns/data/file", "live")
		f := w.open(late(w, join))
		result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(a, "/ns/data")}, batch.Options{}).Results[0]
		f.Close()
		if result.State != operations.Failed || result.Reason != operations.Changed {
			t.Errorf("got %+v", result)
		}
		w.sweep(0)
		w.there("/ns/data/file")
		w.wantEmptyTrash()
		w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.StillOwned)
		w.done(cleanupOf(c, "/ns/data")) // and can take it away
		w.gone("/ns/data")
	})
	t.Run("the volume itself began again", func(t *testing.T) {
		w := newFixture(t)
		w.done(setupOf(a, "/ns/data"))
		w.write("/ns/data/file", "live")
		f := w.open(late(w, setupOf(a, "/ns/data")))
		result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(a, "/ns/data")}, batch.Options{}).Results[0]
		f.Close()
		if result.State != operations.Failed || result.Reason != operations.Changed {
			t.Errorf("got %+v", result)
		}
		w.sweep(0)
		w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+a.Volume)
		w.wantEmptyTrash()
	})
	t.Run("and the process died with it", func(t *testing.T) {
		w := newFixture(t)
		w.done(setupOf(a, "/ns/data"))
		w.write("/ns/data/file", "live")
		f := w.open(late(w, join))
		b, err := batch.Begin(t.Context(), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Lost = func(step string) error {
			if step == "trash /ns/data" {
				return syscall.EIO
			}
			return nil
		}
		if result := b.Do(t.Context(), cleanupOf(a, "/ns/data")); result.Reason != operations.IOError {
			t.Errorf("got %+v", result)
		}
		b.End()
		f.Close()
		w.gone("/ns/data")
		w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.StillOwned)
		w.sweep(0)
		w.there("/ns/data/file")
		w.wantEmptyTrash()
	})
}

// The right to remove the directory says nothing about when an owner came: it may have it from another one, or
// from an administrator, or because the directory was restored.
func TestLateMoveIsUndoneForAnOwnerWithTheRightToRemove(t *testing.T) {
	const p = "/ns/data"
	a, b, trashed := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	adopt := setupOf(b, p)
	adopt.Adopt, adopt.Made = true, true
	for name, others := range map[string][]operations.Operation{
		"inherited":                  {setupOf(b, p), leaving(cleanupOf(a, p))},
		"adopted":                    {adopt},
		"restored":                   {cleanupOf(a, p), restoreOf(b, p, a.ClaimUID)},
		"set up where data was back": {cleanupOf(a, p), restoreOf(b, p, a.ClaimUID), setupOf(b, p)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.done(setupOf(a, p), setupOf(trashed, "/ns/trashed"))
			w.write(p+"/file", "live")
			w.done(cleanupOf(trashed, "/ns/trashed"))
			f := w.open(func(step string) error {
				if step != "trash "+p {
					return nil
				}
				return w.meanwhile(others...)
			})
			result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(a, p)}, batch.Options{}).Results[0]
			f.Close()
			if result.State != operations.Failed || result.Reason != operations.Changed {
				t.Errorf("got %+v", result)
			}
			w.sweep(0)
			w.there(p + "/file")
		})
	}
}

// A restore to the path has begun, and its data is still in the trash: what was moved before is not its own.
func TestMoveIsNotUndoneForARestoreOfOtherData(t *testing.T) {
	const p = "/ns/data"
	w := newFixture(t)
	a, b, trashed := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.done(setupOf(a, p), setupOf(trashed, "/ns/trashed"))
	w.write(p+"/old", "x")
	w.write("/ns/trashed/wanted", "x")
	w.done(cleanupOf(trashed, "/ns/trashed"))
	f := w.open(func(step string) error {
		if step == "remove /.efs-stunnel/owners"+p+"/@"+a.Volume+".leaving" {
			w.write(".efs-stunnel/owners"+p+"/@"+b.Volume, fmt.Sprintf(
				`{"cluster":"c1","namespace":"ns","claim":"claim-2","claimUID":%q,"made":true,"restoredFrom":%q}`, b.ClaimUID, trashed.Volume))
			return errCrash
		}
		return nil
	})
	batch.Run(t.Context(), f, []operations.Operation{cleanupOf(a, p)}, batch.Options{})
	f.Close()
	w.do(leaving(cleanupOf(a, p)), operations.Done, operations.StillOwned)
	w.done(restoreOf(b, p, trashed.ClaimUID))
	w.there(p + "/wanted")
}

// Who makes a directory of its own under the name of one that was moved keeps its own.
func TestMoveIsNotUndoneForANewDirectory(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/old", "x")
	w.crash(cleanupOf(a, "/ns/data"), "remove /.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving")
	w.crash(setupOf(b, "/ns/data"), "place /ns/data")
	op := cleanupOf(a, "/ns/data")
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	w.gone("/ns/data")
	w.there("/.efs-stunnel/trash/" + a.Volume + "/old")
	w.done(setupOf(b, "/ns/data"))
	w.gone("/ns/data/old")
}
