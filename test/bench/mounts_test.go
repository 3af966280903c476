package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	worker "gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
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
	mount := &lostWrites{RawFileSystem: loopback(t, folder)}
	mountOn(t, on, mount)
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
	f := openOn(t, on)
	defer f.Close()
	return clone.Clone(t.Context(), f, cloneOperation(benchOwner("source")), clone.Options{})
}

func openOn(t *testing.T, on string) *fsroot.FileSystem {
	t.Helper()
	f, err := fsroot.Open(t.Context(), on, fsroot.Options{FileSystemID: fileSystemID})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func loopback(t *testing.T, folder string) fuse.RawFileSystem {
	t.Helper()
	root, err := fs.NewLoopbackRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	return fs.NewNodeFS(root, &fs.Options{})
}

// mountOn mounts a file system until the end of the test. Some containers have no FUSE.
func mountOn(t *testing.T, on string, system fuse.RawFileSystem) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	server, err := fuse.NewServer(system, on, &fuse.MountOptions{
		FsName: t.Name(), DirectMountStrict: true, DisabledCapabilities: fuse.CAP_PASSTHROUGH,
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
}

// together is a FUSE mount that answers nobody who opens an owner's entry until several do.
type together struct {
	fuse.RawFileSystem
	entries sync.Map // numbers of owners' entries
	waiting atomic.Int32
	enough  chan struct{}   // closed when several wait
	over    <-chan struct{} // nobody waits any more
}

const severalOwners = 8

func (m *together) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	status := m.RawFileSystem.Lookup(cancel, header, name, out)
	if status.Ok() && strings.HasPrefix(name, wellknown.OwnerPrefix) {
		m.entries.Store(out.NodeId, true)
	}
	return status
}

func (m *together) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if _, ok := m.entries.Load(in.NodeId); ok {
		if m.waiting.Add(1) == severalOwners {
			close(m.enough)
		}
		select {
		case <-m.enough:
		case <-m.over:
		}
	}
	return m.RawFileSystem.Open(cancel, in, out)
}

// TestOwnersOfAPathAreReadSideBySide: a batch that meets thousands of them does not wait for one round trip after
// the other.
func TestOwnersOfAPathAreReadSideBySide(t *testing.T) {
	folder, on := t.TempDir(), t.TempDir()
	var ops []operations.Operation
	for n := range 2 * severalOwners {
		ops = append(ops, operations.Operation{Kind: operations.Setup, Path: "/team/shared", Owner: benchOwner(fmt.Sprint("owner-", n)), Directory: operations.Directory{Mode: "0777"}})
	}
	if err := setUp(t.Context(), folder, ops[1:]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mount := &together{RawFileSystem: loopback(t, folder), enough: make(chan struct{}), over: ctx.Done()}
	mountOn(t, on, mount)
	f := openOn(t, on)
	defer f.Close()
	if results := worker.Run(ctx, f, ops[:1], worker.Options{}).Results; results[0].State != operations.Done {
		t.Errorf("got %+v with %d readers", results, mount.waiting.Load())
	}
}
