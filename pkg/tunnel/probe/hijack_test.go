package probe

import (
	"bufio"
	"bytes"
	"context"
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
)

// listener listens on a free port of this network namespace, and accepts when it is asked to.
func listener(t *testing.T, control func(network, address string, conn syscall.RawConn) error) (net.Listener, netip.AddrPort) {
	t.Helper()
	server, err := (&net.ListenConfig{Control: control}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // nothing is lost with it
	return server, netip.MustParseAddrPort(server.Addr().String())
}

func TestOtherEndIsHere(t *testing.T) {
	toLoopback := func(_, _ string, conn syscall.RawConn) error {
		var bound error
		err := conn.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "lo") })
		return errors.Join(err, bound)
	}
	ended := func(server net.Listener, linger int) {
		if conn, err := server.Accept(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(linger) //nolint:errcheck // the listener is one of TCP
			conn.Close()
		}
	}
	tests := map[string]struct {
		control func(network, address string, conn syscall.RawConn) error
		serve   func(server net.Listener)
	}{
		"not accepted yet":                  {nil, func(net.Listener) {}},
		"accepted":                          {nil, func(server net.Listener) { _, _ = server.Accept() }},
		"bound to the loopback interface":   {toLoopback, func(net.Listener) {}},
		"closed at once":                    {nil, func(server net.Listener) { ended(server, -1) }},
		"reset at once, so that it is gone": {nil, func(server net.Listener) { ended(server, 0) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, address := listener(t, tt.control)
			var log bytes.Buffer
			network := &Network{Log: slog.New(slog.NewTextHandler(&log, nil))}
			for range 20 {
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

// What stunnel has reset is gone, and only its listener is left.
func TestConnectionThatWasResetProvesNothing(t *testing.T) {
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
	if err := accepted.(*net.TCPConn).SetLinger(0); err != nil { //nolint:errcheck // the listener is one of TCP
		t.Fatal(err)
	}
	accepted.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection is open")
	}
	if hijacked, err := isHijacked(t.Context(), conn); hijacked || err != nil {
		t.Errorf("got %v, %v, want nothing", hijacked, err)
	}
}

// A connection of another network namespace, whose address and port are served here, too, is what
// a redirected one looks like.
func TestOtherEndIsElsewhere(t *testing.T) {
	_, address := listener(t, nil)
	inNamespace(t, func() {
		there, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer there.Close()
		conn, err := (&Network{}).Tunnel(t.Context(), address)
		if err != nil {
			t.Errorf("from the namespace of both ends: %v", err)
			return
		}
		defer conn.Close()
		ask := make(chan struct{})
		go func() { // is not of the thread that has left
			defer close(ask)
			if hijacked, err := isHijacked(t.Context(), conn); !hijacked || err != nil {
				t.Errorf("from another namespace: got %v, %v, want it to be hijacked", hijacked, err)
			}
		}()
		<-ask
	})
}

// A kernel that knows no sockets of the kind that is asked for finds nothing, either.
func TestNothingIsProvedWhereNothingIsFound(t *testing.T) {
	inNamespace(t, func() {
		there, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer there.Close()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", there.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ask := make(chan struct{})
		go func() {
			defer close(ask)
			if hijacked, err := isHijacked(t.Context(), conn); hijacked || !errors.Is(err, unix.ENOENT) {
				t.Errorf("got %v, %v, want that it is not known", hijacked, err)
			}
		}()
		<-ask
	})
}

// inNamespace runs something in a network namespace with a loopback interface.
func inNamespace(t *testing.T, do func()) {
	t.Helper()
	ran := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
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
		t.Skip("not allowed to make a network namespace")
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

// Parts of the next test that are processes of their own.
const (
	helperPart   = "PROBE_HELPER_HIJACK"
	partNode     = "node"  // root in a network namespace
	partPod      = "pod"   // a server in another one
	partAgent    = "agent" // without rights in the node's
	agentAddress = "PROBE_HELPER_ADDRESS"
	nobody       = 65534
)

// The rules are those of a CNI's portmap for a hostPort.
const redirect = `table ip hostport {
	chain output { type nat hook output priority -100; fib daddr type local tcp dport %d dnat to 10.99.0.2:%d; }
	chain postrouting { type nat hook postrouting priority 100; ip saddr 127.0.0.1 ip daddr 10.99.0.2 masquerade; }
}`

func TestRedirectedPortIsNoticedWithoutRights(t *testing.T) {
	switch os.Getenv(helperPart) {
	case partNode:
		asNode(t)
		return
	case partPod:
		asPod(t)
		return
	case partAgent:
		asAgent(t)
		return
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no program %s", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("not allowed to make network namespaces")
	}
	text, err := part(t, partNode, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

func part(t *testing.T, name string, attributes *syscall.SysProcAttr, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRedirectedPortIsNoticedWithoutRights$", "-test.timeout=1m")
	cmd.Env = append(append(os.Environ(), helperPart+"="+name), env...)
	cmd.SysProcAttr = attributes
	return cmd
}

func asNode(t *testing.T) {
	run(t, "", "ip", "link", "set", "lo", "up")
	_, address := listener(t, nil)
	pod := part(t, partPod, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
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
	defer input.Close() // ends it
	run(t, "", "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pod.Process.Pid))
	run(t, "", "ip", "address", "add", "10.99.0.1/24", "dev", "veth0")
	run(t, "", "ip", "link", "set", "veth0", "up")
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/veth0/route_localnet", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(input, "its interface is there")
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}

	agent(t, address, "")
	run(t, fmt.Sprintf(redirect, address.Port(), port), "nft", "-f", "-")
	agent(t, address, ReasonHijacked)
	run(t, "", "nft", "delete", "table", "ip", "hostport")
	agent(t, address, "")
}

// agent connects as one without rights.
func agent(t *testing.T, address netip.AddrPort, want string) {
	t.Helper()
	nobodyOnly := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	text, err := part(t, partAgent, nobodyOnly, agentAddress+"="+address.String()).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(text), "reason "+want+"\n") {
		t.Errorf("got %s, %v, want the reason %q", text, err, want)
	}
}

func asAgent(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000") {
		t.Errorf("it has rights: %s, %v", status, err)
	}
	network := &Network{Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	conn, err := network.Tunnel(context.Background(), netip.MustParseAddrPort(os.Getenv(agentAddress))) //nolint:usetesting // its own end is not awaited
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
