package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// attributes are those of a new directory, in Unix terms.
type attributes struct {
	mode     uint32
	uid, gid int
}

// makeVolume makes the directory of a volume, and those on the way to it.
func (b *batch) makeVolume(ctx context.Context, op operations.Operation, gid int) error {
	mode, err := op.UnixMode(gid)
	if err != nil {
		return err
	}
	if gid == 0 {
		gid = op.GID
	}
	parent, err := b.data.ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	return b.makeDirectory(ctx, parent, path.Base(op.Path), attributes{mode: mode, uid: op.UID, gid: gid})
}

// makeShared makes a directory on the way to volumes: root's, so that no tenant can put a link
// into it. Only one is made at a time: a rename replaces an empty directory, so a second one of the
// same name would take the place of the first, which a volume may be about to use.
func (b *batch) makeShared(ctx context.Context, parent *dir, name string) error {
	b.making.Lock()
	defer b.making.Unlock()
	if _, err := parent.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.makeDirectory(ctx, parent, name, attributes{mode: 0o755})
}

// makeDirectory makes a directory aside and renames it into place: it is never seen with the
// wrong mode, a run that dies leaves no half-made one, and one that is there was made whole.
func (b *batch) makeDirectory(ctx context.Context, parent *dir, name string, a attributes) error {
	p := parent.at(name)
	if err := b.fs.beforeGrowing(ctx, "make "+p); err != nil {
		return err
	}
	tmp, err := b.tmp.take(ctx)
	if err != nil {
		return err
	}
	defer b.tmp.put(tmp)
	half := unique("directory")
	if err := tmp.Mkdir(half, privateDirectory); err != nil {
		return fmt.Errorf("making %s: %w", p, err)
	}
	err = tmp.setAttributes(half, a)
	if err == nil {
		err = tmp.move(ctx, "place "+p, half, parent, name)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		err = replaced(p).because(err)
	}
	return errors.Join(err, ignoreMissing(tmp.Remove(half)))
}

// setAttributes sets owner and mode through a handle, so that neither umask nor a link has a say.
func (d *dir) setAttributes(name string, a attributes) error {
	handle, err := d.Open(name)
	if err != nil {
		return err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	if userOf(info) != a.uid || groupOf(info) != a.gid {
		if err := handle.Chown(a.uid, a.gid); err != nil {
			return err
		}
	}
	// After Chown, which drops setuid and setgid.
	return ignoringEINTR(func() error { return syscall.Fchmod(int(handle.Fd()), a.mode) })
}
