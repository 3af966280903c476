package nfsops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func newFolder(parent string, uncached int) (*folder, error) {
	dir, err := os.MkdirTemp(parent, "nfsops-")
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, uncached: uncached}
	if err := f.fill(); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// fill has a file on the server whose content the kernel has forgotten.
func (f *folder) fill() (err error) {
	// A mapping begins at a page, as some file systems want it for what is not cached.
	if f.block, err = unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("getting memory: %w", err)
	}
	name := filepath.Join(f.dir, "file")
	if f.file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	for at := int64(0); at < fileSize; at += blockSize {
		if _, err := f.file.WriteAt(f.block, at); err != nil {
			return err
		}
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.direct, err = os.OpenFile(name, os.O_RDONLY|f.uncached, 0)
	return err
}

func (f *folder) remove() error {
	var errs []error
	for _, file := range []*os.File{f.file, f.direct} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	if f.block != nil {
		errs = append(errs, unix.Munmap(f.block))
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// operation is one kind, of which do does the n-th in a folder and returns how long it took.
type operation struct {
	name string
	do   func(f *folder, n int) (time.Duration, error)
}

func operations() []operation {
	return []operation{
		{"GETATTR", func(f *folder, _ int) (time.Duration, error) { return timed(f.attributes) }},
		{"LOOKUP", func(f *folder, n int) (time.Duration, error) { return timed(func() error { return f.lookUp(n) }) }},
		{"CREATE", (*folder).create},
		{"write of 8 KiB and commit", func(f *folder, n int) (time.Duration, error) { return timed(func() error { return f.commit(n) }) }},
		{"read of 4 KiB", func(f *folder, n int) (time.Duration, error) { return timed(func() error { return f.readOne(n) }) }},
	}
}

func timed(do func() error) (time.Duration, error) {
	begun := time.Now()
	err := do()
	return time.Since(begun), err
}

// attributes has the kernel ask the server, whatever it remembers.
func (f *folder) attributes() error {
	var status unix.Statx_t
	return unix.Statx(int(f.file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &status)
}

// lookUp looks a name up that does not exist, so that the kernel cannot know it.
func (f *folder) lookUp(n int) error {
	_, err := os.Lstat(filepath.Join(f.dir, "absent-"+strconv.Itoa(n)))
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking up a name that does not exist: %w", err)
	}
	return nil
}

// create creates a file, and closes it after the time is taken.
func (f *folder) create(n int) (took time.Duration, err error) {
	var file *os.File
	took, err = timed(func() error {
		file, err = os.OpenFile(filepath.Join(f.dir, "new-"+strconv.Itoa(n)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		return err
	})
	if err != nil {
		return took, err
	}
	return took, file.Close()
}

func (f *folder) commit(n int) error {
	if _, err := f.file.WriteAt(f.block[:writeSize], int64(n*writeSize%fileSize)); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f *folder) readOne(n int) error {
	_, err := f.direct.ReadAt(f.block[:readSize], int64(n*readSize%fileSize))
	return err
}

const streamFile = "stream"

// write writes bytes to a new file, without the kernel's cache.
func (f *folder) write(bytes int) error {
	return f.stream(os.O_CREATE|os.O_TRUNC|os.O_WRONLY, bytes, (*os.File).Write)
}

// read reads what was written.
func (f *folder) read(bytes int) error { return f.stream(os.O_RDONLY, bytes, (*os.File).Read) }

func (f *folder) stream(flags, bytes int, move func(*os.File, []byte) (int, error)) error {
	file, err := os.OpenFile(filepath.Join(f.dir, streamFile), flags|f.uncached, 0o644)
	if err != nil {
		return err
	}
	for done := 0; done < bytes; {
		n, err := move(file, f.block)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		done += n
	}
	return file.Close()
}
