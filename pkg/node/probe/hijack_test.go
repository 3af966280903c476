package probe

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

// listener listens on a free port of this network namespace.
func listener(t *testing.T, control func(network, address string, conn syscall.RawConn) error) (net.Listener, netip.AddrPort) {
	t.Helper()
	server, err := (&net.ListenConfig{Control: control}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // the test may have closed it
	return server, netip.MustParseAddrPort(server.Addr().String())
}

// listers are those with and without the kernel's socket diagnostics.
func listers() []*sockets.Lister {
	denied := &sockets.Lister{}
	denied.Denied.Store(true)
	return []*sockets.Lister{{}, denied}
}

func TestPortOfThisNamespaceIsNotHijacked(t *testing.T) {
	toLoopback := func(_, _ string, conn syscall.RawConn) error {
		var bound error
		err := conn.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "lo") })
		return errors.Join(err, bound)
	}
	acceptAndClose := func(server net.Listener, linger int) {
		if conn, err := server.Accept(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(linger) //nolint:errcheck // the listener is for TCP
			conn.Close()
		}
	}
	tests := map[string]struct {
		control func(network, address string, conn syscall.RawConn) error
		serve   func(server net.Listener)
	}{
		"not accepted yet":                          {nil, func(net.Listener) {}},
		"accepted":                                  {nil, func(server net.Listener) { _, _ = server.Accept() }},
		"bound to the loopback interface":           {toLoopback, func(net.Listener) {}},
		"closed at once":                            {nil, func(server net.Listener) { acceptAndClose(server, -1) }},
		"reset at once, so that its socket is gone": {nil, func(server net.Listener) { acceptAndClose(server, 0) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, address := listener(t, tt.control)
			var log bytes.Buffer
			network := &Network{Log: slog.New(slog.NewTextHandler(&log, nil))}
			for i := range 20 {
				network.sockets.Denied.Store(i%2 > 0)
				go tt.serve(server)
				conn, err := network.Tunnel(t.Context(), address)
				if err == nil {
					conn.Close()
				}
				if errors.Is(err, ErrHijacked) {
					t.Errorf("got %v", err)
				}
			}
			if log.Len() > 0 {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

// The socket of a connection that stunnel has reset is gone, and only the listener's is left.
func TestResetConnectionIsNotHijacked(t *testing.T) {
	server, address := listener(t, nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := accepted.(*net.TCPConn).SetLinger(0); err != nil { //nolint:errcheck // the listener is for TCP
		t.Fatal(err)
	}
	accepted.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection is open")
	}
	for _, all := range listers() {
		if hijacked, err := isHijacked(t.Context(), all, conn); hijacked || err != nil {
			t.Errorf("got %v, %v, want false without error", hijacked, err)
		}
	}
}

// A connection of another network namespace looks like a redirected one if its address and port have
// a listener in this namespace.
func TestConnectionToAnotherNamespaceIsHijacked(t *testing.T) {
	_, address := listener(t, nil)
	inNamespace(t, func() {
		server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		conn, err := (&Network{}).Tunnel(t.Context(), address)
		if err != nil {
			t.Errorf("from the namespace of both ends: %v", err)
			return
		}
		defer conn.Close()
		checked := make(chan struct{})
		go func() { // on a thread of the first namespace
			defer close(checked)
			for _, all := range listers() {
				if hijacked, err := isHijacked(t.Context(), all, conn); !hijacked || err != nil {
					t.Errorf("from another namespace: got %v, %v, want true", hijacked, err)
				}
			}
		}()
		<-checked
	})
}

// A kernel without socket diagnostics finds no sockets at all.
func TestUnknownWhereTheOwnSocketIsNotFound(t *testing.T) {
	inNamespace(t, func() {
		server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			for _, all := range listers() {
				if hijacked, err := isHijacked(t.Context(), all, conn); hijacked || !errors.Is(err, unix.ENOENT) {
					t.Errorf("got %v, %v, want ENOENT", hijacked, err)
				}
			}
		}()
		<-checked
	})
}

// inNamespace runs do in a new network namespace with a loopback interface.
func inNamespace(t *testing.T, do func()) {
	t.Helper()
	ran := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ran <- err
			return
		}
		if err := loopbackUp(); err != nil {
			ran <- err
			return
		}
		do()
		ran <- nil
	}()
	err := <-ran
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to create a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// Roles of the processes of the next test.
const (
	helperRole   = "PROBE_HELPER_HIJACK"
	roleNode     = "node"  // root in a network namespace
	rolePod      = "pod"   // a server in another namespace
	roleAgent    = "agent" // without privileges in the node's namespace
	agentAddress = "PROBE_HELPER_ADDRESS"
	nobody       = 65534
)

// The rules are those of a CNI's portmap for a hostPort.
const redirect = `table ip hostport {
	chain output { type nat hook output priority -100; fib daddr type local tcp dport %d dnat to 10.99.0.2:%d; }
	chain postrouting { type nat hook postrouting priority 100; ip saddr 127.0.0.1 ip daddr 10.99.0.2 masquerade; }
}`

func TestRedirectedPortIsDetectedWithoutPrivileges(t *testing.T) {
	switch os.Getenv(helperRole) {
	case roleNode:
		asNode(t)
		return
	case rolePod:
		asPod(t)
		return
	case roleAgent:
		asAgent(t)
		return
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs the program %s", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to create network namespaces")
	}
	text, err := startRole(t, roleNode, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

func startRole(t *testing.T, name string, attributes *syscall.SysProcAttr, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRedirectedPortIsDetectedWithoutPrivileges$", "-test.timeout=1m")
	cmd.Env = append(append(os.Environ(), helperRole+"="+name), env...)
	cmd.SysProcAttr = attributes
	return cmd
}

func asNode(t *testing.T) {
	run(t, "", "ip", "link", "set", "lo", "up")
	_, address := listener(t, nil)
	pod := startRole(t, rolePod, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	pod.Stderr = os.Stderr
	output, err := pod.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := pod.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pod.Wait() }()
	defer input.Close() // ends the pod
	run(t, "", "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pod.Process.Pid))
	run(t, "", "ip", "address", "add", "10.99.0.1/24", "dev", "veth0")
	run(t, "", "ip", "link", "set", "veth0", "up")
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/veth0/route_localnet", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(input, "interface is up")
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}

	wantReason(t, address, "")
	run(t, fmt.Sprintf(redirect, address.Port(), port), "nft", "-f", "-")
	wantReason(t, address, tunnelspec.ProbeHijacked)
	run(t, "", "nft", "delete", "table", "ip", "hostport")
	wantReason(t, address, "")
}

// wantReason connects as the agent does, without privileges.
func wantReason(t *testing.T, address netip.AddrPort, want string) {
	t.Helper()
	unprivileged := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	text, err := startRole(t, roleAgent, unprivileged, agentAddress+"="+address.String()).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(text), "reason "+want+"\n") {
		t.Errorf("got %s, %v, want the reason %q", text, err, want)
	}
}

func asAgent(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000") {
		t.Errorf("the agent has capabilities: %s, %v", status, err)
	}
	network := &Network{Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	conn, err := network.Tunnel(t.Context(), netip.MustParseAddrPort(os.Getenv(agentAddress)))
	if err == nil {
		conn.Close()
	}
	fmt.Println("reason " + Reason(err))
}

func asPod(t *testing.T) {
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	run(t, "", "ip", "address", "add", "10.99.0.2/24", "dev", "eth0")
	run(t, "", "ip", "link", "set", "eth0", "up")
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "10.99.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(netip.MustParseAddrPort(server.Addr().String()).Port())
	_, _ = io.Copy(io.Discard, input) // until the test ends
}

func run(t *testing.T, input string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = strings.NewReader(input)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, text)
	}
}
