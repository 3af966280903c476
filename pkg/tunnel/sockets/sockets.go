// Package sockets lists the TCP sockets of this network namespace that use loopback addresses: the
// clients of a tunnel's port, its listeners, and whether the peer of a connection is on this node.
// It needs no privileges.
package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ClientCounts are the numbers of established connections to loopback addresses and ports.
type ClientCounts map[netip.AddrPort]int

// OwnUID returns the user of this process for Clients, which then leaves out the connections of the
// node agent. It returns -1 for root, because the connections of the kernel's NFS client are root's,
// too.
func OwnUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return -1
}

// Clients counts the connections to loopback addresses, by the sockets of their clients. It leaves
// out those of the user exceptUID, none with -1.
func Clients(exceptUID int) (ClientCounts, error) {
	counts := ClientCounts{}
	err := dump(1<<unix.BPF_TCP_ESTABLISHED, toLoopback, func(s socket) {
		if exceptUID < 0 || s.uid != uint32(exceptUID) {
			counts[s.remote]++
		}
	})
	return counts, err
}

// Listeners are the inodes of the sockets that listen at each loopback address and port.
type Listeners map[netip.AddrPort][]uint32

// Listening lists the sockets that listen on loopback addresses.
func Listening() (Listeners, error) {
	all := Listeners{}
	err := dump(1<<unix.BPF_TCP_LISTEN, fromLoopback, func(s socket) {
		all[s.local] = append(all[s.local], s.inode)
	})
	return all, err
}

// State returns the state of the TCP socket of this network namespace that receives packets from
// remote to local: that of the connection, or else a listener. The error is unix.ENOENT if there is
// neither.
func State(local, remote netip.AddrPort) (state uint8, err error) {
	request := newRequest(unix.NLM_F_REQUEST, allStates, socketID{local, remote, loopbackIndex}, nil)
	// The kernel answers one lookup before the request returns.
	err = query(request, unix.MSG_DONTWAIT, func(m syscall.NetlinkMessage) (done bool, err error) {
		if m.Header.Type != unix.SOCK_DIAG_BY_FAMILY || len(m.Data) <= stateOffset {
			return true, fmt.Errorf("%w: type %d with %d bytes", errMessage, m.Header.Type, len(m.Data))
		}
		state = m.Data[stateOffset]
		return true, nil
	})
	return state, err
}

// Inode returns the inode of a socket, as in Listeners.
func Inode(file *os.File) (uint32, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the inode of a socket: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("reading the inode of a socket: the file has none")
	}
	return uint32(stat.Ino), nil
}
