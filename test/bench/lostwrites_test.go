package main

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	mounted "gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
)

// lostWrites is a FUSE mount that loses the beginning of files while it is on, and reports that as an NFS client
// does: not when it is written, but when the data should be on the server, and only once for each file. New
// attributes are accepted meanwhile.
type lostWrites struct {
	fuse.RawFileSystem
	on   atomic.Bool
	lost atomic.Bool // and not reported yet
}

func (l *lostWrites) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if !l.on.Load() || in.Offset > 0 {
		return l.RawFileSystem.Writev(cancel, in, data)
	}
	l.lost.Store(true)
	return in.Size, fuse.OK
}

func (l *lostWrites) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if l.lost.Swap(false) {
		return fuse.EIO
	}
	return l.RawFileSystem.Fsync(cancel, in)
}

func (l *lostWrites) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if l.lost.Swap(false) {
		return fuse.EIO
	}
	return l.RawFileSystem.Flush(cancel, in)
}

// TestCloneCopiesAgainWhatWasLost: the next run does not take a file for complete whose data did not reach the
// server, although its size is right. Without a mount, which this is about, there would be nothing to lose.
func TestCloneCopiesAgainWhatWasLost(t *testing.T) {
	folder, on := t.TempDir(), t.TempDir()
	if err := makeVolumes(t.Context(), folder, benchOwner("source")); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("content "), 1<<19) // more than one request
	if err := os.WriteFile(filepath.Join(folder, volumePath("source"), "file"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := fs.NewLoopbackRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	mount := &lostWrites{RawFileSystem: fs.NewNodeFS(root, &fs.Options{})}
	server, err := fuse.NewServer(mount, on, &fuse.MountOptions{
		FsName: "lost-writes", DirectMountStrict: true, DisabledCapabilities: fuse.CAP_PASSTHROUGH,
	})
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve()
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	if err := server.WaitMount(); err != nil {
		t.Fatal(err)
	}
	mount.on.Store(true)
	if result := cloneOn(t, on); result.State == operations.Done {
		t.Errorf("a clone that lost data: %+v", result)
	}
	mount.on.Store(false)
	if result := cloneOn(t, on); result.State != operations.Done {
		t.Fatalf("the next run: %+v", result)
	}
	got, err := os.ReadFile(filepath.Join(folder, volumePath("copy"), "file"))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the copy differs from its source (%d and %d bytes, %v)", len(got), len(content), err)
	}
}

func cloneOn(t *testing.T, on string) operations.Result {
	t.Helper()
	f, err := mounted.Open(t.Context(), on, mounted.Options{FileSystemID: fileSystemID})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Clone(t.Context(), cloneOperation(benchOwner("source")), mounted.CloneOptions{})
}
