package treewalk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

// openDirectory opens a directory of a new file system, which has count files.
func openDirectory(t *testing.T, count int) (*fsroot.FileSystem, *fsroot.Dir) {
	t.Helper()
	f, err := fsroot.Open(t.Context(), memorytest.Folder(t), fsroot.Options{FileSystemID: "fs-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	top, err := f.Root.Ensure(t.Context(), "top")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	if err := top.Mkdir("branch", 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if err := top.WriteFile(fmt.Sprint("branch/", n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f, top
}

// A server's listing can jump over entries while others are removed.
func TestDirectoryThatIsNotEmptyAfterAllIsReadAgain(t *testing.T) {
	f, top := openDirectory(t, 1)
	var once sync.Once
	f.Request = func(int) { // the first is that for the branch itself, the second for its file, which was listed
		once.Do(func() {
			if err := top.Rename("branch/0", "branch/1"); err != nil {
				t.Error(err)
			}
		})
	}
	renamed := 0
	f.Step = func(step string) error {
		if step == "sweep branch" {
			renamed++
		}
		return nil
	}
	swept, err := Empty(t.Context(), NewWalkers(f, 0, 0), top, nil, Options{})
	if err != nil || swept.Removed != 2 || renamed < 2 {
		t.Errorf("%+v after %d pieces, %v", swept, renamed, err)
	}
}

// Servers answer in more than one way that a directory is not empty.
func TestFullDirectoriesAreRecognizedByAnyError(t *testing.T) {
	folder, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	err = errors.Join(folder.Mkdir("full", 0o700), folder.WriteFile("full/file", nil, 0o600), folder.WriteFile("file", nil, 0o600), folder.Symlink("full", "link"))
	if err != nil {
		t.Fatal(err)
	}
	b := &branch{root: folder}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"full", syscall.ENOENT, false},
		{"full", syscall.ENOTEMPTY, true},
		{"full", syscall.EEXIST, true},
		{"full", syscall.EPERM, true},
		{"full", syscall.EBUSY, true},
		{"full", syscall.EISDIR, true},
		{"file", syscall.EISDIR, false}, // it was a directory between the two tries
		{"file", syscall.EPERM, false},
		{"link", syscall.EPERM, false},
		{"gone", syscall.EPERM, false},
	} {
		if got := b.isFull(tt.name, &fs.PathError{Op: "unlinkat", Path: tt.name, Err: tt.err}); got != tt.want {
			t.Errorf("%s after %v: %v, want %v", tt.name, tt.err, got, tt.want)
		}
	}
	if b.isFull("full", nil) {
		t.Error("what was removed is not full")
	}
}

// TestStaleHandles are what another node leaves that empties the same trash.
func TestStaleHandles(t *testing.T) {
	r := newRemoval(nil, &fsroot.Dir{}, Options{})
	below := &branch{parent: r.top, name: "swept"}
	stale := fmt.Errorf("openat: %w", syscall.ESTALE)
	if r.fail(below, stale); len(r.errs) > 0 || below.failed.Load() || r.top.failed.Load() {
		t.Errorf("what is gone stays: %v", r.errs)
	}
	if r.fail(r.top, stale); len(r.errs) != 1 || !r.top.failed.Load() {
		t.Errorf("the staging directory may not be gone: %v", r.errs)
	}
}

// A large directory does not keep all walkers, which would wait for each other there.
func TestLargeDirectoryLeavesWalkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, top := openDirectory(t, 8*pieceSize)
		var now, most atomic.Int64
		f.Request = func(int) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Millisecond)
			now.Add(-1)
		}
		if _, err := Empty(t.Context(), NewWalkers(f, 15, 0), top, nil, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := most.Load(); got < 2 || got > pieceSize/clearedBy {
			t.Errorf("%d walkers were in one directory, want at most %d", got, pieceSize/clearedBy)
		}
	})
}

// A step that fails ends a removal, also for the walkers that are elsewhere.
func TestRemovalEndsWithTheStepThatFails(t *testing.T) {
	f, top := openDirectory(t, 3*pieceSize)
	failed := errors.New("failed")
	f.Step = func(step string) error {
		if strings.HasPrefix(step, "sweep branch") {
			return failed
		}
		return nil
	}
	swept, err := Empty(t.Context(), NewWalkers(f, 3, 0), top, nil, Options{})
	if !errors.Is(err, failed) || !fsroot.IsStop(err) || swept.Removed != 0 {
		t.Errorf("%+v, %v", swept, err)
	}
}
