package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowMount is a FUSE mount of a folder, whose server waits before each answer as an NFS server does that is
// some milliseconds away. As on EFS there are no extended attributes, no holes to seek and no copies on the
// server. Nothing is kept back by the client: writes are requests at once.
type slowMount struct {
	fuse.RawFileSystem
	latency time.Duration
	slots   chan struct{} // one for each request that is waited for
	server  *fuse.Server

	mu       sync.Mutex
	requests requestCounts // guarded by mu
}

// requestCounts are by the name that FUSE has for them.
type requestCounts map[string]int

const (
	// mountSlots is how many requests an NFS session of the Linux kernel has under way, unless an
	// administrator sets another number.
	mountSlots = 64
	// mountCache is how long names and attributes are used without another request: acregmin of NFS.
	mountCache = 3 * time.Second
)

// mountSlowly mounts a folder on another one. With attributes, reading a directory gives those of its entries.
func mountSlowly(folder, on string, latency time.Duration, attributes bool) (*slowMount, error) {
	root, err := fs.NewLoopbackRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", folder, err)
	}
	cache := mountCache
	m := &slowMount{
		RawFileSystem: fs.NewNodeFS(root, &fs.Options{EntryTimeout: &cache, AttrTimeout: &cache}),
		latency:       latency, slots: make(chan struct{}, mountSlots), requests: requestCounts{},
	}
	m.server, err = fuse.NewServer(m, on, &fuse.MountOptions{
		FsName: "slow", DirectMountStrict: true, DisableXAttrs: true, DisableReadDirPlus: !attributes, MaxBackground: mountSlots,
		DisabledCapabilities: fuse.CAP_PASSTHROUGH, // reads and writes past the server
	})
	if err != nil {
		return nil, fmt.Errorf("mounting %s on %s: %w", folder, on, err)
	}
	go m.server.Serve()
	if err := m.server.WaitMount(); err != nil {
		return nil, fmt.Errorf("mounting %s on %s: %w", folder, on, err)
	}
	return m, nil
}

// onSlowMount has something done on a mount of its own, with empty caches.
func onSlowMount(folder string, latency time.Duration, attributes bool, do func(on string) error) (requests requestCounts, err error) {
	on, err := os.MkdirTemp("", "efs-stunnel-bench-mount-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(on)) }()
	m, err := mountSlowly(folder, on, latency, attributes)
	if err != nil {
		return nil, err
	}
	err = do(on)
	requests = m.counts()
	return requests, errors.Join(err, m.server.Unmount())
}

func (m *slowMount) counts() requestCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.requests)
}

// wait counts a request, and waits as long as its way takes.
func (m *slowMount) wait(request string) {
	m.mu.Lock()
	m.requests[request]++
	m.mu.Unlock()
	m.slots <- struct{}{}
	<-time.After(m.latency)
	<-m.slots
}

// Lookup and all other requests wait, but for those that no program waits for: Forget, Release, ReleaseDir. Nor does
// Fsync: the writes before it were requests at once, and to an NFS server there would be nothing left to send.
func (m *slowMount) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	m.wait("LOOKUP")
	return m.RawFileSystem.Lookup(cancel, header, name, out)
}

func (m *slowMount) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.wait("GETATTR")
	return m.RawFileSystem.GetAttr(cancel, in, out)
}

func (m *slowMount) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	m.wait("SETATTR")
	return m.RawFileSystem.SetAttr(cancel, in, out)
}

func (m *slowMount) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	m.wait("STATX")
	return m.RawFileSystem.Statx(cancel, in, out)
}

func (m *slowMount) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	m.wait("ACCESS")
	return m.RawFileSystem.Access(cancel, in)
}

func (m *slowMount) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	m.wait("MKNOD")
	return m.RawFileSystem.Mknod(cancel, in, name, out)
}

func (m *slowMount) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	m.wait("MKDIR")
	return m.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (m *slowMount) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	m.wait("UNLINK")
	return m.RawFileSystem.Unlink(cancel, header, name)
}

func (m *slowMount) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	m.wait("RMDIR")
	return m.RawFileSystem.Rmdir(cancel, header, name)
}

func (m *slowMount) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	m.wait("RENAME")
	return m.RawFileSystem.Rename(cancel, in, oldName, newName)
}

func (m *slowMount) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	m.wait("LINK")
	return m.RawFileSystem.Link(cancel, in, name, out)
}

func (m *slowMount) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	m.wait("CREATE")
	return m.RawFileSystem.Create(cancel, in, name, out)
}

func (m *slowMount) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	m.wait("OPEN")
	return m.RawFileSystem.Open(cancel, in, out)
}

func (m *slowMount) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	m.wait("READ")
	return m.RawFileSystem.Read(cancel, in, buffer)
}

func (m *slowMount) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	m.wait("WRITE")
	return m.RawFileSystem.Writev(cancel, in, data)
}

// Flush is what FUSE has for the end of an open file.
func (m *slowMount) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	m.wait("FLUSH")
	return m.RawFileSystem.Flush(cancel, in)
}

func (m *slowMount) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	m.wait("OPENDIR")
	return m.RawFileSystem.OpenDir(cancel, in, out)
}

func (m *slowMount) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	m.wait("READDIR")
	return m.RawFileSystem.ReadDir(cancel, in, out)
}

func (m *slowMount) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	m.wait("READDIRPLUS")
	return m.RawFileSystem.ReadDirPlus(cancel, in, out)
}

// Lseek does not exist, as before NFSv4.2; the client answers it alone.
func (m *slowMount) Lseek(<-chan struct{}, *fuse.LseekIn, *fuse.LseekOut) fuse.Status {
	return fuse.ENOSYS
}

// CopyFileRange does not exist either: the client reads and writes.
func (m *slowMount) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}
