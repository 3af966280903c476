package main

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	mebi      = 1 << 20
	nfsNoSpc  = 28
	nfsDQuot  = 69
	quotaFlag = "--quotas"
)

// withQuotas returns what docs/reference/nfs-server.md lists for quotas.
func withQuotas() []string { return append(capabilities(), "SYS_ADMIN") }

// xfs makes a file with an xfs for mount(8), and skips the test where the kernel has no quotas of xfs.
func (c *container) xfs() string {
	c.Helper()
	image, folder := filepath.Join(c.folder, "disk"), filepath.Join(c.folder, "mounted")
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		c.Skip("want mkfs.xfs of Debian's xfsprogs")
	}
	c.run("truncate", "-s", "640M", image)
	c.run("mkfs.xfs", "-q", image)
	c.check(os.Mkdir(folder, 0o700))
	const options = "-o loop,prjquota "
	try := exec.CommandContext(c.Context(), "unshare", "-m", "sh", "-c", "mount "+options+image+" "+folder)
	if out, err := try.CombinedOutput(); err != nil {
		c.Skipf("want a kernel with CONFIG_XFS_QUOTA: %v: %s", err, out)
	}
	return options + image
}

// TestQuotas has clients write more than the ledger's sizes allow.
func TestQuotas(t *testing.T) {
	c := newContainer(t)
	c.start(c.xfs(), withQuotas(), quotaFlag)
	c.awaitReady()
	c.volume("/ns/data", "pvc-1", 64*mebi)
	c.volume("/ns/other", "pvc-2", 64*mebi)
	c.check(os.Symlink("other", c.inside("/data/export/ns/link")))
	c.entry("/ns/link", "pvc-3", mebi)
	c.entry("/ns/gone", "pvc-4", mebi)
	c.awaitLimited(2)

	if total := binary.BigEndian.Uint64(c.do(0, append(walk("ns", "data"), totalSpace())...).text(t, 12)); total != 64*mebi {
		t.Errorf("df shows %d bytes of a volume of 64 MiB", total)
	}
	if got := c.fill("ns", "data"); got < 60 || got > 64 {
		t.Errorf("%d MiB fit into a volume of 64 MiB", got)
	}
	if status := c.write(0, "ns", "other"); status != nfsOK {
		t.Errorf("beside a full volume, another one answers NFS status %d", status)
	}
	c.entry("/ns/data", "pvc-5", 128*mebi) // a second owner, with more
	c.await("grown", func() (bool, any) { return c.write(64, "ns", "data") == nfsOK, nil })
	if got := c.fill("ns", "data"); got < 120 || got > 128 {
		t.Errorf("%d MiB fit into a volume that has grown to 128 MiB", got)
	}
	t.Run("trash", func(t *testing.T) { c.checkTrash(t) })
	t.Run("content from before", func(t *testing.T) { c.checkContent(t) })
}

// checkTrash moves a full directory to the trash and back, as mount Jobs do. Neither way counts it.
func (c *container) checkTrash(t *testing.T) {
	c.check(os.MkdirAll(c.inside("/data/export/.efs-stunnel/trash"), 0o700))
	move := func(from, to []string, name, as string) {
		t.Helper()
		ops := append(walk(from...), xdr{}.words(opSaveFH))
		ops = append(append(ops, walk(to...)...), xdr{}.words(opRename).text(name).text(as))
		if got := c.do(0, ops...); got.status != nfsOK {
			t.Fatalf("moving %s to %s: NFS status %d", name, as, got.status)
		}
	}
	trash := []string{".efs-stunnel", "trash"}
	c.check(os.RemoveAll(c.inside("/data/export/.efs-stunnel/owners/ns/data")))
	move([]string{"ns"}, trash, "data", "pvc-1")
	c.awaitLimited(1)
	c.volume("/ns/data", "pvc-6", 64*mebi)
	c.awaitLimited(2)
	if got := c.fill("ns", "data"); got < 60 || got > 64 {
		t.Errorf("while 128 MiB of its path are in the trash, %d MiB fit into a new volume of 64 MiB", got)
	}
	c.entry("/ns/back", "pvc-7", 64*mebi)
	move(trash, []string{"ns"}, "pvc-1", "back")
	c.awaitLimited(3)
	if status := c.write(140, "ns", "back"); status != nfsNoSpc && status != nfsDQuot {
		t.Errorf("a full directory that came back answers NFS status %d", status)
	}
}

// checkContent limits a directory that had content before it had a size, deep in it and behind links.
func (c *container) checkContent(t *testing.T) {
	top := c.inside("/data/export/copy")
	deep := top + strings.Repeat("/d", 100)
	c.check(os.MkdirAll(deep, 0o777))
	c.check(os.WriteFile(deep+"/file", make([]byte, 40*mebi), 0o666))
	c.check(os.WriteFile(c.inside("/data/export/outside"), nil, 0o666))
	c.check(os.Symlink("../outside", top+"/link"))
	c.check(unix.Mkfifo(top+"/pipe", 0o666))
	c.writable("/data/export/copy/file")
	c.entry("/copy", "pvc-8", 64*mebi)
	c.awaitLimited(4)
	if got := c.fill("copy"); got < 20 || got > 24 {
		t.Errorf("%d MiB fit beside 40 in a volume of 64 MiB", got)
	}
	c.check(os.WriteFile(c.inside("/data/export/outside"), make([]byte, 30*mebi), 0o666))
}

// TestDiskWithoutQuotas is served, and the log says once that sizes are not enforced. NFS-Ganesha does not get the
// right to set quotas.
func TestDiskWithoutQuotas(t *testing.T) {
	c := newContainer(t)
	c.start(c.disk(), withQuotas(), quotaFlag)
	c.awaitReady()
	c.await("reported", func() (bool, any) {
		_, text, err := c.get("/metrics")
		return strings.Contains(text, "\nefs_stunnel_nfs_server_quotas_failing 1\n"), err
	})
	if got := strings.Count(c.log.String(), "the sizes of volumes are not enforced"); got != 1 {
		t.Errorf("the log says %d times that sizes are not enforced", got)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.find("ganesha.nfsd")))
	c.check(err)
	for line := range strings.Lines(string(status)) {
		var name string
		var set uint64
		if n, _ := fmt.Sscanf(line, "Cap%s %x", &name, &set); n == 2 && name != "Bnd:" && set&(1<<unix.CAP_SYS_ADMIN) != 0 {
			t.Errorf("nfs-ganesha may set quotas: %s", line)
		}
	}
}

// volume makes a directory with a file, and its owner.
func (c *container) volume(path, volume string, size int64) {
	c.Helper()
	c.check(os.MkdirAll(c.inside("/data/export"+path), 0o777))
	c.writable("/data/export" + path + "/file")
	c.entry(path, volume, size)
}

// writable makes a file that every user can write to.
func (c *container) writable(path string) {
	c.Helper()
	c.check(os.WriteFile(c.inside(path), nil, 0o600))
	c.check(os.Chmod(c.inside(path), 0o666))
}

// entry writes an entry of the ledger as mount Jobs do, by a rename.
func (c *container) entry(path, volume string, size int64) {
	c.Helper()
	folder := c.inside("/data/export/.efs-stunnel/owners" + path)
	fresh := c.inside("/data/export/.efs-stunnel/fresh")
	c.check(os.MkdirAll(folder, 0o700))
	c.check(os.WriteFile(fresh, fmt.Appendf(nil, `{"cluster":"c","size":%d}`, size), fs.FileMode(0o600)))
	c.check(os.Rename(fresh, filepath.Join(folder, "@"+volume)))
}

func (c *container) awaitLimited(count int) {
	c.Helper()
	c.await(fmt.Sprintf("limiting %d directories", count), func() (bool, any) {
		_, text, err := c.get("/metrics")
		limited := strings.Contains(text, fmt.Sprintf("\nefs_stunnel_nfs_server_limited_directories %d\n", count))
		return limited && strings.Contains(text, "\nefs_stunnel_nfs_server_quotas_failing 0\n"), fmt.Sprint(err, c.log.String())
	})
}

func walk(path ...string) []xdr {
	ops := []xdr{root()}
	for _, name := range path {
		ops = append(ops, lookup(name))
	}
	return ops
}

// write writes a MiB of a directory's file as a user, durably, and returns the status.
func (c *container) write(at int, path ...string) uint32 {
	c.Helper()
	const fileSync = 2
	offset := uint64(at) * mebi
	op := xdr{}.words(opWrite, 0, 0, 0, 0, uint32(offset>>32), uint32(offset), fileSync).text(strings.Repeat("x", mebi))
	return c.do(1234, append(walk(append(path, "file")...), op)...).status
}

// fill writes until the volume is full, and returns how many MiB have fit.
func (c *container) fill(path ...string) int {
	c.Helper()
	for at := 0; ; at++ {
		switch status := c.write(at, path...); {
		case status == nfsNoSpc, status == nfsDQuot:
			return at
		case status != nfsOK || at > 256:
			c.Fatalf("writing MiB %d of %q: NFS status %d", at, path, status)
		}
	}
}
