package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/test/support/loggingtest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// Environment variables. rootVariable names a folder with Debian's nfs-ganesha and stunnel, which make sets; the
// others make this test program the runtime of a container, and the program in it.
const (
	rootVariable         = "NFS_SERVER_ROOT"
	roleVariable         = "NFSSERVER_TEST_ROLE"
	folderVariable       = "NFSSERVER_TEST_FOLDER"
	diskVariable         = "NFSSERVER_TEST_DISK" // arguments of mount(8)
	capabilitiesVariable = "NFSSERVER_TEST_CAPABILITIES"
)

// capabilities returns what docs/reference/nfs-server.md lists.
func capabilities() []string {
	return []string{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
}

// numbers of the capabilities, from linux/capability.h.
func numbers() map[string]uintptr {
	return map[string]uintptr{
		"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "FOWNER": unix.CAP_FOWNER,
		"FSETID": unix.CAP_FSETID, "KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID,
		"SYS_ADMIN": unix.CAP_SYS_ADMIN,
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "runtime":
		fmt.Fprintln(os.Stderr, enterContainer())
		os.Exit(1)
	case "program":
		main()
	}
	os.Exit(m.Run())
}

// enterContainer replaces this process, which has namespaces of its own, by the program with a read-only
// root file system and few capabilities. Only /run/efs-stunnel and /data can be written.
func enterContainer() error {
	folder, source := os.Getenv(folderVariable), os.Getenv(rootVariable)
	root := filepath.Join(folder, "root")
	runtime.LockOSThread() // capabilities are the thread's
	script := `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1/layers"
mkdir "$1/layers/upper" "$1/layers/work"
mount -t overlay -o "lowerdir=$2,upperdir=$1/layers/upper,workdir=$1/layers/work" overlay "$1/root"
cd "$1/root"
mkdir -p usr/local/bin data run etc/efs-stunnel/server dev proc
cp -L usr/bin/stunnel4 usr/local/bin/stunnel
cp "$3" usr/local/bin/nfsserver
rm -rf etc/mtab tmp
ln -s /proc/mounts etc/mtab
ln -s /run/efs-stunnel tmp
mount -o remount,ro "$1/root"
mount -t tmpfs tmpfs run
mkdir run/efs-stunnel
mount --bind "$1/server" etc/efs-stunnel/server
mount $4 data
mount -t proc proc proc
mount --bind /dev dev
ip link set lo up
ip address add 10.0.0.1/32 dev lo
`
	self, err := os.Executable()
	if err != nil {
		return err
	}
	setup := exec.CommandContext(context.Background(), "sh", "-c", script, "sh", folder, source, self, os.Getenv(diskVariable))
	if out, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("making a container: %w: %s", err, out)
	}
	if err := errors.Join(unix.Chroot(root), unix.Chdir("/")); err != nil {
		return err
	}
	kept := map[uintptr]bool{}
	for name := range strings.SplitSeq(os.Getenv(capabilitiesVariable), ",") {
		kept[numbers()[name]] = true
	}
	for number := uintptr(0); number <= unix.CAP_LAST_CAP; number++ {
		if kept[number] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0); err != nil {
			return fmt.Errorf("dropping capability %d: %w", number, err)
		}
	}
	env := []string{roleVariable + "=program"}
	return syscall.Exec("/usr/local/bin/nfsserver", append([]string{"nfsserver"}, os.Args[1:]...), env)
}

// container is a running server with a disk of its own.
type container struct {
	*testing.T
	folder string
	pid    int // of the program in it, for this process
	ended  chan error
	log    *loggingtest.Buffer
	server *stunneltest.Authority // of the server's certificate
	client tls.Certificate
}

// newContainer makes the folder of a container, and the certificates in it.
func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Getenv(rootVariable) == "" {
		t.Skip("want " + rootVariable + ", a folder with Debian's nfs-ganesha and stunnel: make sets it")
	}
	if os.Geteuid() != 0 {
		t.Skip("want root, for mounts and namespaces")
	}
	c := &container{T: t, folder: t.TempDir(), server: stunneltest.NewAuthority(t), log: &loggingtest.Buffer{}}
	for _, name := range []string{"root", "layers", "server"} {
		c.check(os.Mkdir(filepath.Join(c.folder, name), 0o755))
	}
	clients := stunneltest.NewAuthority(t)
	authorities, err := os.ReadFile(clients.File)
	c.check(err)
	c.check(os.WriteFile(c.certificate("ca.crt"), authorities, 0o600))
	cert, key := clients.ClientFiles(t)
	c.client, err = tls.LoadX509KeyPair(cert, key)
	c.check(err)
	c.issue()
	return c
}

func (c *container) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *container) certificate(name string) string { return filepath.Join(c.folder, "server", name) }

// issue gives the server another certificate.
func (c *container) issue() {
	c.Helper()
	cert, key := c.server.ClientFiles(c.T) // a pair in files; what it is for does not matter to stunnel
	c.check(os.Rename(cert, c.certificate("tls.crt")))
	c.check(os.Rename(key, c.certificate("tls.key")))
}

// disk makes a file with an ext4 file system for mount(8).
func (c *container) disk() string {
	c.Helper()
	image := filepath.Join(c.folder, "disk")
	c.run("truncate", "-s", "64M", image)
	c.run("mkfs.ext4", "-q", image)
	return "-o loop " + image
}

func (c *container) run(name string, args ...string) {
	c.Helper()
	if out, err := exec.CommandContext(c.Context(), name, args...).CombinedOutput(); err != nil {
		c.Fatalf("%s: %v: %s", name, err, out)
	}
}

// start starts the server with the arguments of mount(8) for its disk.
func (c *container) start(disk string, capabilities []string, args ...string) {
	c.Helper()
	cmd := exec.Command("/proc/self/exe", args...) //nolint:noctx // it ends in the cleanup
	cmd.Env = append(os.Environ(), roleVariable+"=runtime", folderVariable+"="+c.folder, diskVariable+"="+disk,
		capabilitiesVariable+"="+strings.Join(capabilities, ","))
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // until the test ends: the signal is sent when the thread ends
	c.check(cmd.Start())
	c.pid, c.ended = cmd.Process.Pid, make(chan error, 1)
	go func() { c.ended <- cmd.Wait(); close(c.ended) }()
	c.Cleanup(func() {
		_ = cmd.Process.Kill() // may have ended
		ended := <-c.ended
		if c.Failed() {
			c.Log(ended, c.log.String())
		}
	})
}

// inside returns the path of a file of the container for this process.
func (c *container) inside(path string) string { return fmt.Sprintf("/proc/%d/root%s", c.pid, path) }

// dial connects to an address in the container's network.
func (c *container) dial(ctx context.Context, _, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var network *os.File
		if network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", c.pid)); err != nil {
			return
		}
		defer network.Close()
		if err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		}
	}()
	<-done
	return conn, err
}

// connect opens a connection of a client with certificates.
func (c *container) connect(certificates ...tls.Certificate) (*tls.Conn, error) {
	raw, err := c.dial(c.Context(), "tcp", "10.0.0.1:2049")
	if err != nil {
		return nil, err
	}
	c.Cleanup(func() { raw.Close() })
	c.check(raw.SetDeadline(time.Now().Add(time.Minute)))
	conn := tls.Client(raw, &tls.Config{Certificates: certificates, InsecureSkipVerify: true}) //nolint:gosec // the server's certificate is another test's
	return conn, conn.HandshakeContext(c.Context())
}

// do executes operations over a new connection of the client.
func (c *container) do(user uint32, ops ...xdr) result {
	c.Helper()
	conn, err := c.connect(c.client)
	c.check(err)
	r, err := compound(conn, user, ops...)
	c.check(err)
	return r
}

// get returns a response of the server for health and metrics.
func (c *container) get(path string) (code int, text string, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://10.0.0.1:8080"+path, nil)
	c.check(err)
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// await waits for a condition, and shows what was last if it does not come about.
func (c *container) await(what string, condition func() (ok bool, last any)) {
	c.Helper()
	deadline := time.After(time.Minute)
	for {
		ok, last := condition()
		if ok {
			return
		}
		select {
		case err := <-c.ended:
			c.Fatalf("the server ended before %s: %v", what, err)
		case <-deadline:
			c.Fatalf("not %s: %v", what, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *container) awaitReady() {
	c.Helper()
	c.await("ready", func() (bool, any) {
		code, text, err := c.get("/readyz")
		return code == http.StatusOK, fmt.Sprint(text, err)
	})
}
