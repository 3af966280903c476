package sockets_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

// TestSocketsAreListedWithoutDiagnostics has the kernel deny netlink sockets, as SELinux denies
// their use for socket diagnostics.
func TestSocketsAreListedWithoutDiagnostics(t *testing.T) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	local := netip.MustParseAddrPort(conn.LocalAddr().String())
	var lister sockets.Lister
	withoutDiagnostics(t, func() {
		all, err := lister.Listening()
		clients, clientsErr := lister.Clients(-1)
		others, othersErr := lister.Clients(os.Getuid())
		if err := errors.Join(err, clientsErr, othersErr); err != nil {
			t.Error(err)
			return
		}
		if len(all[address]) != 1 || !slices.Equal(all[address], listening(t)[address]) {
			t.Errorf("got listeners %v, want %v", all[address], listening(t)[address])
		}
		if clients[address] != 1 || others[address] != 0 {
			t.Errorf("got %d clients and %d without this user, want 1 and 0", clients[address], others[address])
		}
		checkState(t, &lister, address, local, unix.BPF_TCP_ESTABLISHED, nil)
		checkState(t, &lister, local, address, unix.BPF_TCP_ESTABLISHED, nil)
		checkState(t, &lister, address, netip.AddrPortFrom(local.Addr(), 1), unix.BPF_TCP_LISTEN, nil)
		checkState(t, &lister, netip.AddrPortFrom(address.Addr(), 1), local, 0, unix.ENOENT)
	})
	if !lister.Denied.Load() {
		t.Error("the denial is not recorded, so that each listing meets it again")
	}
}

// listening lists with the diagnostics, on another thread.
func listening(t *testing.T) sockets.Listeners {
	t.Helper()
	result := make(chan sockets.Listeners)
	go func() {
		all, err := new(sockets.Lister).Listening()
		if err != nil {
			t.Error(err)
		}
		result <- all
	}()
	return <-result
}

func checkState(t *testing.T, lister *sockets.Lister, local, remote netip.AddrPort, want uint8, wantErr error) {
	t.Helper()
	if got, err := lister.State(local, remote); got != want || !errors.Is(err, wantErr) {
		t.Errorf("from %s to %s: got %d and %v, want %d and %v", remote, local, got, err, want, wantErr)
	}
}

// TestSocketsOfIPv6CountWithTheirIPv4Addresses: a program that listens for both families accepts on a
// socket of IPv6.
func TestSocketsOfIPv6CountWithTheirIPv4Addresses(t *testing.T) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddrPort(listener.Addr().String()).Port())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	local := netip.MustParseAddrPort(conn.LocalAddr().String())
	for _, denied := range []bool{false, true} {
		var lister sockets.Lister
		lister.Denied.Store(denied)
		checkState(t, &lister, address, local, unix.BPF_TCP_ESTABLISHED, nil)
		checkState(t, &lister, address, netip.AddrPortFrom(local.Addr(), 1), unix.BPF_TCP_LISTEN, nil)
	}
}

// withoutDiagnostics calls do on a thread that may not make netlink sockets.
func withoutDiagnostics(t *testing.T, do func()) {
	t.Helper()
	denied := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := denyNetlink()
		if err == nil {
			do()
		}
		denied <- err
	}()
	if err := <-denied; err != nil {
		t.Fatal(err)
	}
}

// denyNetlink has socket(2) fail with EACCES for netlink, in this thread.
func denyNetlink() error {
	const number, family = 0, 16 // offsets in struct seccomp_data, of little-endian machines
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(number), unless(unix.SYS_SOCKET, 3),
		load(family), unless(unix.AF_NETLINK, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)), end(unix.SECCOMP_RET_ALLOW),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}
