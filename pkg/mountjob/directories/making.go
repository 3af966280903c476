package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// shape is what a new directory looks like, in Unix terms.
type shape struct {
	mode     uint32
	uid, gid int
}

// makeShared makes a directory on the way to volumes: root's, and nobody else may put a link
// into it.
func (b *batch) makeShared(ctx context.Context, parent *os.Root, name, where string) error {
	return b.makeDirectory(ctx, parent, name, where, shape{mode: 0o755})
}

// makeDirectory makes a directory aside and renames it into place: it is never seen with the
// wrong mode, a run that dies leaves no half-made one, and one that is there was made whole.
func (b *batch) makeDirectory(ctx context.Context, parent *os.Root, name, where string, s shape) error {
	half := unique("directory")
	if err := b.fs.beforeGrowing(ctx, "make "+where); err != nil {
		return err
	}
	if err := b.tmp.Mkdir(half, privateDirectory); err != nil {
		return fmt.Errorf("making %s: %w", where, err)
	}
	err := b.give(half, s)
	if err == nil {
		err = b.place(ctx, half, parent, name, where)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(b.tmp.Remove(half)))
	}
	return nil
}

// give sets owner and mode through a handle, so that neither umask nor a link has a say.
func (b *batch) give(name string, s shape) error {
	dir, err := b.tmp.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if userOf(info) != s.uid || groupOf(info) != s.gid {
		if err := dir.Chown(s.uid, s.gid); err != nil {
			return err
		}
	}
	return dir.Chmod(fileMode(s.mode)) // after Chown, which drops setuid and setgid
}

func (b *batch) place(ctx context.Context, half string, parent *os.Root, name, where string) error {
	err := b.fs.move(ctx, "place "+where, b.tmp, half, parent, name)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		return changed(where).because(err)
	}
	return err
}

// fileMode turns Unix bits into Go's.
func fileMode(unix uint32) fs.FileMode {
	mode := fs.FileMode(unix & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if unix&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
