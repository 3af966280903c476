package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// TestHostileClients has a client with a valid certificate ask for what is not the export's, and others
// without one ask for anything.
func TestHostileClients(t *testing.T) {
	c := newContainer(t)
	c.start(c.disk(), capabilities())
	c.awaitReady()
	c.check(os.WriteFile(c.inside("/data/export/inside"), []byte("inside"), 0o644))
	c.check(os.WriteFile(c.inside("/data/outside"), []byte("outside"), 0o600))
	c.check(os.Symlink("/etc/passwd", c.inside("/data/export/absolute")))
	c.check(os.Symlink("../outside", c.inside("/data/export/relative")))
	if got := c.do(0, root(), lookup("inside"), read()).content(t); string(got) != "inside" {
		t.Fatalf("got %q of a file of the export", got)
	}
	for name, ops := range map[string][]xdr{
		"the parent by name":         {root(), lookup("..")},
		"a path in a name":           {root(), lookup("../outside")},
		"an absolute path in a name": {root(), lookup("/etc/passwd")},
		"the folder itself":          {root(), lookup(".")},
		"a folder beside the export": {root(), lookup("recovery")},
		"the parent of the root":     {root(), lookupParent()},
		"an absolute link's target":  {root(), lookup("absolute"), read()},
		"a relative link's target":   {root(), lookup("relative"), read()},
		"a file behind a link":       {root(), lookup("absolute"), lookup("passwd")},
		"no handle":                  {putHandle(nil), getType()},
		"a handle of zeros":          {putHandle(make([]byte, 40)), getType()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.do(0, ops...); got.status == nfsOK {
				t.Errorf("the server answers with %x", got.last)
			}
		})
	}
	t.Run("made-up handles", func(t *testing.T) { c.checkHandles(t) })
	t.Run("clients without TLS or a certificate", func(t *testing.T) { c.checkStrangers(t) })
	t.Run("ports", func(t *testing.T) { c.checkPorts(t) })
}

// checkHandles makes up handles. Those of the export's own file system are opened, which is why it must hold
// nothing else; no other file system can be reached.
func (c *container) checkHandles(t *testing.T) {
	valid := c.do(0, root(), lookup("inside"), getHandle()).handle(t)
	part, other := c.kernelHandle("/data/export/inside"), c.kernelHandle("/data/outside")
	at := bytes.Index(valid, part)
	if at < 0 {
		t.Fatalf("the handle %x lacks the kernel's %x", valid, part)
	}
	made := slices.Concat(valid[:at], other, valid[at+len(part):])
	if got := c.do(0, putHandle(made), read()); got.status != nfsOK || string(got.content(t)) != "outside" {
		t.Errorf("got NFS status %d: if this server refuses handles of files beside the export, the disk need not be the export's own any more", got.status)
	}
	for i := range at {
		for _, changed := range []byte{valid[i] ^ 1, valid[i] ^ 0xff} {
			made := bytes.Clone(valid)
			made[i] = changed
			if got := c.do(0, putHandle(made), read()); got.status == nfsOK && string(got.content(t)) != "inside" {
				t.Errorf("with %x in place of byte %d of its handle, the file is %q", changed, i, got.content(t))
			}
		}
	}
}

// kernelHandle returns the kernel's handle of a file in the container.
func (c *container) kernelHandle(path string) []byte {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, c.inside(path), 0)
	c.check(err)
	return handle.Bytes()
}

func (c *container) checkStrangers(t *testing.T) {
	expectRefused := func(who string, conn net.Conn, err error) {
		t.Helper()
		if err == nil {
			err = nfsnull.Call(t.Context(), conn, 1) // a server of TLS 1.3 judges the certificate after the handshake
		}
		if err == nil {
			t.Errorf("the server answers a client %s", who)
		}
	}
	conn, err := c.connect()
	expectRefused("without a certificate", conn, err)
	cert, key := stunneltest.NewAuthority(t).ClientFiles(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	c.check(err)
	conn, err = c.connect(pair)
	expectRefused("of another authority", conn, err)
	plain, err := c.dial(t.Context(), "tcp", "10.0.0.1:2049")
	c.check(err)
	defer plain.Close()
	expectRefused("without TLS", plain, nil)
	if conn, err := c.dial(t.Context(), "tcp", "10.0.0.1:12049"); err == nil {
		conn.Close()
		t.Error("nfs-ganesha accepts connections from the network")
	}
}

// checkPorts expects three sockets that wait for connections or datagrams: stunnel's, that for health, and
// Ganesha's on the loopback.
func (c *container) checkPorts(t *testing.T) {
	const tcpListening, udpUnconnected = "0A", "07"
	var got []string
	for file, state := range map[string]string{"tcp": tcpListening, "tcp6": tcpListening, "udp": udpUnconnected, "udp6": udpUnconnected} {
		text, err := os.ReadFile(c.inside("/proc/1/net/" + file))
		c.check(err)
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); fields[3] == state {
				got = append(got, file+" "+fields[1])
			}
		}
	}
	slices.Sort(got)
	const any6 = "00000000000000000000000000000000"
	if diff := cmp.Diff([]string{"tcp 0100007F:2F11", "tcp6 " + any6 + ":0801", "tcp6 " + any6 + ":1F90"}, got); diff != "" {
		t.Errorf("sockets mismatch (-want +got):\n%s", diff)
	}
}

// TestServerLives follows a server from its start to its end: files have their owners' rights, a program that
// dies is started again, a new certificate is served to new clients while old ones stay.
func TestServerLives(t *testing.T) {
	c := newContainer(t)
	c.start(c.disk(), capabilities())
	c.awaitReady()
	c.checkOwners(t)
	if text := c.log.String(); strings.Contains(text, "level=ERROR msg=\"program logged\" program=nfs-ganesha") {
		t.Errorf("nfs-ganesha logs errors:\n%s", text)
	}
	before, err := c.connect(c.client)
	c.check(err)
	c.issue()
	c.await("served with the new certificate", func() (bool, any) {
		conn, err := c.connect(c.client)
		c.check(err)
		return !bytes.Equal(conn.ConnectionState().PeerCertificates[0].Raw, before.ConnectionState().PeerCertificates[0].Raw), nil
	})
	if r, err := compound(before, 0, root(), lookup("team")); err != nil || r.status != nfsOK {
		t.Errorf("the connection from before the new certificate: NFS status %d, %v", r.status, err)
	}
	c.awaitReady()
	for _, name := range []string{"ganesha.nfsd", "stunnel"} {
		old := c.find(name)
		c.check(syscall.Kill(old, syscall.SIGKILL))
		c.await(name+" started again", func() (bool, any) { return c.find(name) != old && c.find(name) != 0, c.log.String() })
	}
	c.await("answering again", func() (bool, any) {
		conn, err := c.connect(c.client)
		if err == nil {
			err = nfsnull.Call(t.Context(), conn, 1)
		}
		return err == nil, err
	})
	c.check(syscall.Kill(c.pid, syscall.SIGTERM))
	if err := <-c.ended; err != nil {
		t.Errorf("asked to end, the server ended with %v", err)
	}
	for _, line := range []string{"program=stunnel exitStatus=", "program=nfs-ganesha exitStatus=\"exit status 0\"", "NFS server ends"} {
		if !strings.Contains(c.log.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
}

// TestDiskIsServedOnce: of two pods with one disk, which Kubernetes can run on a node, the second one waits, and says so.
func TestDiskIsServedOnce(t *testing.T) {
	c := newContainer(t)
	disk := filepath.Join(c.folder, "mounted")
	c.check(os.Mkdir(disk, 0o755))
	c.run("sh", "-c", "mount "+c.disk()+" "+disk)
	c.Cleanup(func() { c.check(unix.Unmount(disk, unix.MNT_DETACH)) })
	recovery := filepath.Join(disk, "recovery")
	c.check(os.Mkdir(recovery, 0o700))
	lock := func() *os.File {
		t.Helper()
		file, err := os.Open(recovery)
		c.check(err)
		c.Cleanup(func() { _ = file.Close() }) // may be closed
		return file
	}
	first := lock()
	c.check(unix.Flock(int(first.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	const assigns = "the sizes of volumes are" // enforced or not: it has looked at the disk
	c.start("--bind "+disk, withQuotas(), "--quotas")
	c.await("waiting", func() (bool, any) {
		_, text, err := c.get("/readyz")
		return strings.Contains(text, "another server still serves the disk"), fmt.Sprint(text, err)
	})
	if got := c.children(); len(got) > 0 {
		t.Errorf("beside another server runs %q", got)
	}
	if strings.Contains(c.log.String(), assigns) {
		t.Error("two servers assign quotas on one disk")
	}
	c.check(first.Close())
	c.awaitReady()
	c.await("quotas", func() (bool, any) { return strings.Contains(c.log.String(), assigns), c.log })
	if err := unix.Flock(int(lock().Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("locking a disk that is served: got %v, want %v", err, unix.EWOULDBLOCK)
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.find("ganesha.nfsd")))
	c.check(err)
	if !slices.ContainsFunc(links, func(link string) bool {
		to, _ := os.Readlink(link) // one that was closed meanwhile is another
		return strings.HasSuffix(to, "/recovery")
	}) {
		t.Error("Ganesha has no copy of the lock, which would end with its parent")
	}
}

// TestFullDiskIsNamed: it is not ready, and answers readers and deletions.
func TestFullDiskIsNamed(t *testing.T) {
	c := newContainer(t)
	c.start(c.disk(), capabilities())
	c.awaitReady()
	c.check(os.WriteFile(c.inside("/data/export/read"), nil, 0o644))
	file, err := os.Create(c.inside("/data/export/fill"))
	c.check(err)
	for err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	if c.check(file.Close()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if code, text, err := c.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "[-] disk: it is full: 0 of ") || !strings.Contains(text, "[+] nfs") {
		t.Errorf("got %d, %q, %v", code, text, err)
	}
	for _, ops := range [][]xdr{{root(), lookup("read")}, {root(), remove("fill")}} {
		if r := c.do(0, ops...); r.status != nfsOK {
			t.Errorf("on a full disk: NFS status %d", r.status)
		}
	}
	c.awaitReady()
}

// checkOwners does what mount Jobs do as root, and what pods do as users.
func (c *container) checkOwners(t *testing.T) {
	for _, step := range []struct {
		what string
		user uint32
		ops  []xdr
		want uint32
	}{
		{"root makes a directory", 0, []xdr{root(), mkdir("team")}, nfsOK},
		{"root gives it away", 0, []xdr{root(), lookup("team"), chown(1234, 2345)}, nfsOK},
		{"root sets setgid of another group", 0, []xdr{root(), lookup("team"), chmod(0o2770)}, nfsOK},
		{"its owner makes a directory", 1234, []xdr{root(), lookup("team"), mkdir("own")}, nfsOK},
		{"root enters what only its owner may", 0, []xdr{root(), lookup("team"), lookup("own"), mkdir("by-root")}, nfsOK},
		{"another may not", 99, []xdr{root(), lookup("team"), mkdir("other")}, nfsAccess},
		{"another may not change it", 99, []xdr{root(), lookup("team"), chmod(0o777)}, 1},
	} {
		if got := c.do(step.user, step.ops...); got.status != step.want {
			t.Errorf("%s: NFS status %d, want %d", step.what, got.status, step.want)
		}
	}
	info, err := os.Stat(c.inside("/data/export/team"))
	c.check(err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 1234 || stat.Gid != 2345 || info.Mode() != os.ModeDir|os.ModeSetgid|0o770 {
		t.Errorf("the directory is %+v with mode %s", stat, info.Mode())
	}
}

// find returns the process id of a program in the container for this process, 0 if there is none.
func (c *container) find(name string) int {
	for _, pid := range c.children() {
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if err == nil && strings.TrimSpace(string(comm)) == name {
			number, err := strconv.Atoi(pid)
			c.check(err)
			return number
		}
	}
	return 0
}

// children returns the process ids of the program's children, of whichever thread.
func (c *container) children() []string {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.pid))
	c.check(err)
	var all []string
	for _, file := range files {
		if list, err := os.ReadFile(file); err == nil { // the thread may have ended
			all = append(all, strings.Fields(string(list))...)
		}
	}
	return all
}
