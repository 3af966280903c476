package clone

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

// Many files that are written at once have to share the memory.
func TestFileIsFlushedWhenOthersHaveTheMemory(t *testing.T) {
	f, err := fsroot.Open(t.Context(), memorytest.Folder(t), fsroot.Options{FileSystemID: "fs-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := f.Root.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := newCopying(f, time.Time{}, nil, nil, Options{})
	one, other := &writing{c: c, from: file, to: file}, &writing{c: c, from: file, to: file}
	one.wrote(1)
	other.wrote(maxUnflushed - 1)
	if err := one.makeRoom(t.Context(), 1, 2); err != nil || one.bytes != 0 || c.unflushed.Load() != maxUnflushed-1 {
		t.Errorf("%d bytes of the file and %d of all are not flushed (%v)", one.bytes, c.unflushed.Load(), err)
	}
}

// A server drops the setuid bit of a file that is written, and the attributes from before that are known still.
func TestSetuidIsSetAfterWriting(t *testing.T) {
	f, err := fsroot.Open(t.Context(), memorytest.Folder(t), fsroot.Options{FileSystemID: "fs-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := f.Root.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var is unix.Stat_t
	if err := errors.Join(unix.Fchmod(int(file.Fd()), 0o4755), fsroot.Fstat(file, &is), unix.Fchmod(int(file.Fd()), 0o755)); err != nil {
		t.Fatal(err)
	}
	err = newCopying(f, time.Time{}, nil, nil, Options{}).setAttributes(file, file, is, &is)
	if info, statErr := file.Stat(); err != nil || statErr != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Errorf("the mode is %v (%v, %v)", info.Mode(), err, statErr)
	}
}
