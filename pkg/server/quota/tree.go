package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// assign gives a directory and all that is in it to a project. A directory comes before what is in it: what is made
// there from then on belongs to the project, too, and the kernel moves nothing of another project into it. Links,
// sockets and pipes cannot be assigned.
//
// Directories wait as handles, because clients can nest them deeper than a path or this process's descriptors reach.
func (d disk) assign(ctx context.Context, path string, project uint32) error {
	top, err := d.open(path, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("opening directory %q: %w", path, err)
	}
	for dir, waiting := top, []unix.FileHandle(nil); ; {
		waiting, err = assignOne(ctx, dir, project, waiting)
		_ = dir.Close() // nothing was written to it
		for dir = nil; dir == nil && err == nil && len(waiting) > 0; {
			last := waiting[len(waiting)-1]
			waiting = waiting[:len(waiting)-1]
			dir, err = d.openHandle(last)
		}
		if err != nil {
			return fmt.Errorf("assigning directory %q to project %d: %w", path, project, err)
		}
		if dir == nil {
			return nil
		}
	}
}

// openHandle returns nil for a directory that was removed meanwhile.
func (d disk) openHandle(handle unix.FileHandle) (*os.File, error) {
	fd, err := unix.OpenByHandleAt(int(d.root.Fd()), handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "directory"), nil
}

// namesAtOnce limits what is read of a directory at once: it may have millions of names.
const namesAtOnce = 1024

// assignOne gives a directory and its files to a project, and adds its directories to those that wait.
func assignOne(ctx context.Context, dir *os.File, project uint32, waiting []unix.FileHandle) ([]unix.FileHandle, error) {
	if err := setProject(dir, project, inherit); err != nil {
		return waiting, err
	}
	for {
		entries, err := dir.ReadDir(namesAtOnce)
		if errors.Is(err, io.EOF) || isAbsent(err) {
			return waiting, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return waiting, err
		}
		for _, entry := range entries {
			switch {
			case entry.IsDir():
				waiting, err = addHandle(waiting, dir, entry.Name())
			case entry.Type() == 0:
				err = assignFile(dir, entry.Name(), project)
			}
			if err != nil && !isAbsent(err) { // removed or replaced meanwhile: what is new belongs to the project
				return waiting, err
			}
		}
	}
}

func addHandle(waiting []unix.FileHandle, dir *os.File, name string) ([]unix.FileHandle, error) {
	handle, _, err := unix.NameToHandleAt(int(dir.Fd()), name, 0)
	if err != nil {
		return waiting, err
	}
	return append(waiting, handle), nil
}

func assignFile(dir *os.File, name string, project uint32) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	err = setProject(file, project, 0)
	if errors.Is(err, unix.ENOTTY) {
		return nil // a pipe has taken the file's name
	}
	return err
}
