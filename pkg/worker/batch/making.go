package batch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// attributes are those of a new directory, in Unix terms.
type attributes struct {
	mode     uint32
	uid, gid int
}

// makeVolume makes the directory of a volume, and those on the way to it.
func (b *Batch) makeVolume(ctx context.Context, op operations.Operation, gid int) error {
	mode, err := op.UnixMode(gid)
	if err != nil {
		return err
	}
	if gid == 0 {
		gid = op.GID
	}
	parent, err := b.Data.Ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	return b.makeDirectory(ctx, parent, path.Base(op.Path), attributes{mode: mode, uid: op.UID, gid: gid})
}

// Place moves a complete directory to the operation's path. The locks are checked just before that.
func (b *Batch) Place(ctx context.Context, op operations.Operation, step string, from *fsroot.Dir, name string, locks ...*fsroot.HeldLock) error {
	parent, err := b.Data.Ensure(ctx, path.Dir(op.Path))
	for _, lock := range append(locks, b.lock) {
		if err == nil {
			err = lock.Check()
		}
	}
	if err == nil {
		err = from.MoveTo(ctx, step+" "+op.Path, name, parent, path.Base(op.Path))
	}
	if errors.Is(err, fs.ErrExist) {
		return fsroot.Replaced(op.Path).Because(err)
	}
	return err
}

// makeShared makes a directory on the way to volumes: root's, so that no tenant can put a link
// into it. Only one is made at a time: a rename replaces an empty directory, so a second one of the
// same name would take the place of the first, which a volume may be about to use.
func (b *Batch) makeShared(ctx context.Context, parent *fsroot.Dir, name string) error {
	b.making.Lock()
	defer b.making.Unlock()
	if _, err := parent.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.makeDirectory(ctx, parent, name, attributes{mode: 0o755})
}

// makeDirectory makes a directory aside and renames it into place: it is never seen with the
// wrong mode, a run that dies leaves no half-made one, and one that is there was made whole.
func (b *Batch) makeDirectory(ctx context.Context, parent *fsroot.Dir, name string, a attributes) error {
	p := parent.At(name)
	if err := b.system.BeforeGrowing(ctx, "make "+p); err != nil {
		return err
	}
	tmp, err := b.tmp.Take(ctx)
	if err != nil {
		return err
	}
	defer b.tmp.Put(tmp)
	half := fsroot.Unique("directory")
	if err := tmp.Mkdir(half, fsroot.PrivateDirectory); err != nil {
		return fmt.Errorf("making %s: %w", p, err)
	}
	err = setAttributes(tmp, half, a)
	if err == nil {
		err = tmp.MoveTo(ctx, "place "+p, half, parent, name)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		err = fsroot.Replaced(p).Because(err)
	}
	return errors.Join(err, fsroot.IgnoreMissing(tmp.Remove(half)))
}

// setAttributes sets owner and mode through a handle, so that neither umask nor a link has a say.
func setAttributes(d *fsroot.Dir, name string, a attributes) error {
	handle, err := d.Open(name)
	if err != nil {
		return err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	if fsroot.UserOf(info) != a.uid || fsroot.GroupOf(info) != a.gid {
		if err := handle.Chown(a.uid, a.gid); err != nil {
			return err
		}
	}
	// After Chown, which drops setuid and setgid.
	return fsroot.IgnoringEINTR(func() error { return syscall.Fchmod(int(handle.Fd()), a.mode) })
}

// Occupancy reads the entries and the directory. Retained data that is not there was removed by a
// person, and its marks are dropped.
func (b *Batch) Occupancy(ctx context.Context, op operations.Operation) (ledger.Occupancy, error) {
	found, err := b.Ledger.Owners(ctx, op)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	found.Info, err = b.Data.Inspect(ctx, op.Path)
	if err != nil || found.Info != nil || len(found.Retained) == 0 {
		return found, err
	}
	back, err := b.resumeUndoOfOthers(ctx, op, found)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	if back {
		found.Info, err = b.Data.Inspect(ctx, op.Path)
		return found, err
	}
	err = b.Ledger.Drop(ctx, op.Path, found.Retained...)
	found.Retained = nil
	return found, err
}
