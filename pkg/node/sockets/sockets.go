// Package sockets lists the TCP sockets of this network namespace that use loopback addresses: the
// clients of a tunnel's port, its listeners, and whether the peer of a connection is on this node.
// It needs no privileges.
package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
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
