package standin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// tunnel does what stunnel does on a node, for clients without TLS.
func (l *lab) tunnel(t *testing.T, address, accessPoint, fileSystem string) (port int) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			plain, err := listener.Accept()
			if err != nil {
				return
			}
			secure := l.dial(t, address, accessPoint, fileSystem)
			go func() { _, _ = io.Copy(secure, plain); _ = secure.CloseWrite() }()
			go func() { _, _ = io.Copy(plain, secure); plain.Close() }()
		}
	}()
	local, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("not TCP")
	}
	return local.Port
}

func nfsTool(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skip("needs libnfs-utils")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func url(port int, file string) string {
	return fmt.Sprintf("nfs://127.0.0.1/%s?version=4&nfsport=%d", file, port)
}

func TestMountTargetsWithRealServers(t *testing.T) {
	if os.Getenv("LAB_GANESHA_ROOT") == "" {
		t.Skip("LAB_GANESHA_ROOT names no folder of extracted nfs-ganesha packages")
	}
	l := newLab(t)
	parts := l.Parts()
	t.Cleanup(func() { stopAll(t, parts) })
	run := func(ctx context.Context, log *slog.Logger) error {
		return Run(ctx, l.Lab, ganesha.Root(os.Getenv("LAB_GANESHA_ROOT")), log)
	}
	whole := t // for cleanups at the end of the whole test
	stop := l.start(t, run)
	point, err := l.client.CreateAccessPoint(t.Context(), inventory.NewAccessPoint{
		FileSystemID: shared, Path: "/team", PosixUser: &inventory.PosixUser{UID: 1234, GID: 5678},
		CreationInfo: &inventory.CreationInfo{OwnerUID: 1234, OwnerGID: 5678, Permissions: "0750"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("NULL", func(t *testing.T) {
		for _, address := range []string{"10.90.1.200", "10.90.2.200", "10.90.1.201", "10.90.2.201"} {
			if err := ganesha.Ping(t.Context(), l.dial(t, address, "", "")); err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
		if err := ganesha.Ping(t.Context(), l.dial(t, "10.90.1.200", point.ID, shared)); err != nil {
			t.Errorf("access point: %v", err)
		}
	})
	t.Run("an access point's root and user", func(t *testing.T) { l.checkAccessPoint(t, point) })
	t.Run("files", func(t *testing.T) { l.checkFiles(t, point) })
	t.Run("a server that dies comes back", func(t *testing.T) {
		before, _ := parts.Get("ganesha-" + shared)
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "another server", func() error {
			if after, ok := parts.Get("ganesha-" + shared); !ok || after.PID == before.PID || !after.Alive() {
				return fmt.Errorf("pid %d", after.PID)
			}
			return l.client.Ready(t.Context())
		})
		if err := ganesha.Ping(t.Context(), l.dial(t, "10.90.1.200", "", "")); err != nil {
			t.Error(err)
		}
	})
	t.Run("a restart adopts the servers", func(t *testing.T) {
		before, _ := parts.Get("ganesha-" + point.ID)
		stop()
		l.start(whole, run)
		if after, _ := parts.Get("ganesha-" + point.ID); after.PID != before.PID {
			t.Errorf("pid %d, want %d as before", after.PID, before.PID)
		}
		if err := ganesha.Ping(t.Context(), l.dial(t, "10.90.1.200", point.ID, shared)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a deleted access point's server ends", func(t *testing.T) {
		before, _ := parts.Get("ganesha-" + point.ID)
		if err := l.client.DeleteAccessPoint(t.Context(), point.ID); err != nil {
			t.Fatal(err)
		}
		if before.Alive() {
			t.Error("it still runs")
		}
	})
}

// checkFiles writes through an access point and reads through the whole file
// system and its other zone.
func (l *lab) checkFiles(t *testing.T, point inventory.AccessPoint) {
	t.Helper()
	whole := l.tunnel(t, "10.90.2.200", "", shared)
	part := l.tunnel(t, "10.90.1.200", point.ID, shared)
	other := l.tunnel(t, "10.90.1.201", "", archive)
	local := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(local, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	nfsTool(t, "nfs-cp", local, url(part, "/file"))
	if list := nfsTool(t, "nfs-ls", url(part, "")); !strings.Contains(list, "file") || strings.Contains(list, "team") {
		t.Errorf("access point lists\n%s", list)
	}
	if list := nfsTool(t, "nfs-ls", url(whole, "team")); !strings.Contains(list, "file") {
		t.Errorf("file system lists\n%s", list)
	}
	if list := nfsTool(t, "nfs-ls", url(other, "")); strings.Contains(list, "team") {
		t.Errorf("other file system lists\n%s", list)
	}
	info, err := os.Stat(l.Path("efs", "data", shared, "team", "file"))
	if err != nil {
		t.Fatal(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 1234 || stat.Gid != 5678 {
		t.Errorf("the file's owner is %+v, want the access point's user", stat)
	}
}

// stopAll runs after the test's context has ended.
func stopAll(t *testing.T, parts proc.Dir) {
	t.Helper()
	records, err := parts.List()
	if err != nil {
		t.Error(err)
	}
	for _, r := range records {
		if err := parts.Stop(context.WithoutCancel(t.Context()), r.Name, 10*time.Second); err != nil {
			t.Error(err)
		}
	}
}
