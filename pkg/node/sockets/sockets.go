// Package sockets lists the TCP sockets of this network namespace that use loopback addresses: the
// clients of a tunnel's port, its listeners, and whether the peer of a connection is on this node.
// It needs no privileges.
package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Lister lists sockets by the kernel's socket diagnostics. Where those are denied, it reads the text files
// of /proc instead: the SELinux policy for containers forbids the diagnostics before container-selinux
// 2.242. The zero Lister is ready for use, also by several goroutines. It must not be copied.
type Lister struct {
	// Denied is set by the first refusal. Each further attempt would add a line to the node's audit log.
	Denied atomic.Bool
}

func (l *Lister) dump(states uint32, condition uint8, report func(socket)) error {
	return l.first(
		func() error { return dump(states, condition, report) },
		func() error { return dumpProc(states, condition, report) })
}

// first calls fallback where diagnose is denied, which has reported no socket then.
func (l *Lister) first(diagnose, fallback func() error) error {
	var err error
	isDenied := l.Denied.Load()
	if !isDenied {
		err = diagnose()
		isDenied = errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	}
	if isDenied {
		l.Denied.Store(true)
		err = fallback()
	}
	if err != nil {
		return fmt.Errorf("listing sockets of the kernel: %w", err)
	}
	return nil
}

// ClientCounts are the numbers of established connections to loopback addresses and ports.
type ClientCounts map[netip.AddrPort]int

// OwnUID returns the user of this process for Clients, which then leaves out the connections of the node
// agent. It returns -1 for root, because the connections of the kernel's NFS client are root's, too.
func OwnUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return -1
}

// Clients counts the connections to loopback addresses, by the sockets of their clients. It leaves
// out those of the user exceptUID, none with -1.
func (l *Lister) Clients(exceptUID int) (ClientCounts, error) {
	counts := ClientCounts{}
	err := l.dump(1<<unix.BPF_TCP_ESTABLISHED, conditionRemote, func(s socket) {
		if exceptUID < 0 || s.UID != uint32(exceptUID) {
			counts[s.ID.remote()]++
		}
	})
	return counts, err
}

// Listeners are the inodes of the sockets that listen at each loopback address and port.
type Listeners map[netip.AddrPort][]uint32

// Listening lists the sockets that listen on loopback addresses.
func (l *Lister) Listening() (Listeners, error) {
	return l.listening(func(socket) bool { return true })
}

// ListeningAs lists those of Listening that one user has opened. No socket is that of -1, which OwnUID returns
// for root: root has many that are not of this program.
func (l *Lister) ListeningAs(uid int) (Listeners, error) {
	return l.listening(func(s socket) bool { return int(s.UID) == uid })
}

func (l *Lister) listening(isWanted func(socket) bool) (Listeners, error) {
	all := Listeners{}
	err := l.dump(1<<unix.BPF_TCP_LISTEN, conditionLocal, func(s socket) {
		if isWanted(s) {
			all[s.ID.local()] = append(all[s.ID.local()], s.Inode)
		}
	})
	return all, err
}

// State returns the state of the TCP socket of this network namespace that receives packets from remote to
// local: that of the connection, or else a listener. The error is unix.ENOENT if there is neither.
func (l *Lister) State(local, remote netip.AddrPort) (state uint8, err error) {
	report := func(s socket) { state = s.State }
	err = l.first(
		func() error { return lookup(local, remote, report) },
		func() error { return lookupProc(local, remote, report) })
	return state, err
}

// Inode returns the inode of a socket, as in Listeners.
func Inode(file *os.File) (uint32, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, fmt.Errorf("reading the inode of a socket: %w", err)
	}
	return uint32(stat.Ino), nil
}

// procFiles list the sockets of this thread's network namespace (proc_pid_net(5)). That of IPv6 is absent
// where the kernel has no IPv6. Its sockets can have IPv4 addresses, too.
var procFiles = [...]string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}

// dumpProc is dump by the text that the kernel has for all sockets, which costs more with many of them.
func dumpProc(states uint32, condition uint8, report func(socket)) error {
	return readProc(func(s socket) {
		address := s.ID.LocalAddress
		if condition == conditionRemote {
			address = s.ID.RemoteAddress
		}
		if states&(1<<s.State) != 0 && address[0] == 127 {
			report(s)
		}
	})
}

// lookupProc is lookup by that text.
func lookupProc(local, remote netip.AddrPort, report func(socket)) error {
	var found socket
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())
	err := readProc(func(s socket) {
		at := s.ID.local()
		switch {
		case at == local && s.ID.remote() == remote,
			s.State == unix.BPF_TCP_LISTEN && (at == local || at == any4) && found.State == 0:
			found = s
		}
	})
	switch {
	case err != nil:
		return err
	case found.State == 0:
		return unix.ENOENT
	}
	report(found)
	return nil
}

// readProc calls report for each TCP socket with IPv4 addresses.
func readProc(report func(socket)) error {
	for i, name := range procFiles {
		err := readProcFile(name, report)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func readProcFile(name string, report func(socket)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan(); lines.Scan(); { // the first line has the titles
		s, isIPv4, err := parseProc(lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %.200q of %s: %w", lines.Text(), name, err)
		}
		if isIPv4 {
			report(s)
		}
	}
	return lines.Err()
}

// parseProc parses a line of a file of procFiles:
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
func parseProc(line []byte) (s socket, isIPv4 bool, err error) {
	fields := bytes.Fields(line)
	if len(fields) < 10 {
		return s, false, fmt.Errorf("%d fields", len(fields))
	}
	local, localIs4, localErr := parseProcAddress(fields[1], &s.ID.LocalPort)
	remote, remoteIs4, remoteErr := parseProcAddress(fields[2], &s.ID.RemotePort)
	state, stateErr := strconv.ParseUint(string(fields[3]), 16, 5)
	uid, uidErr := strconv.ParseUint(string(fields[7]), 10, 32)
	inode, inodeErr := strconv.ParseUint(string(fields[9]), 10, 64)
	copy(s.ID.LocalAddress[:], local[:])
	copy(s.ID.RemoteAddress[:], remote[:])
	s.State, s.UID, s.Inode = uint8(state), uint32(uid), uint32(inode)
	return s, localIs4 && remoteIs4, errors.Join(localErr, remoteErr, stateErr, uidErr, inodeErr)
}

// parseProcAddress parses an address in words of the host's byte order, a colon and a port. The
// unspecified address of IPv6 counts as that of IPv4, for which its listeners accept, too.
func parseProcAddress(text []byte, port *[2]byte) (address [4]byte, is4 bool, err error) {
	before, after, _ := bytes.Cut(text, []byte(":"))
	var raw [16]byte
	n, err := hex.Decode(raw[:], before[:min(len(before), 2*len(raw))])
	number, portErr := strconv.ParseUint(string(after), 16, 16)
	if err := errors.Join(err, portErr); err != nil {
		return address, false, err
	}
	binary.BigEndian.PutUint16(port[:], uint16(number))
	for i := 0; i+4 <= n; i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	if n == len(address) {
		return [4]byte(raw[:4]), true, nil
	}
	ip := netip.AddrFrom16(raw).Unmap()
	if ip.Is4() {
		address = ip.As4()
	}
	return address, ip.Is4() || ip.IsUnspecified(), nil
}
