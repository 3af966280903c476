// Package sockets asks the kernel which TCP sockets of this network namespace use loopback
// addresses: who is connected to a tunnel's port, who listens there, and whether the other end of a
// connection is here. It needs no rights.
package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Uses are the established connections to each loopback address and port.
type Uses map[netip.AddrPort]int

// OwnUID is whom Clients is to except so that the connections of a node's agent, which runs as the
// user of this process, are not taken for somebody's use of a tunnel. Nobody is excepted if that is
// root: the kernel's NFS client is root's, too.
func OwnUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return -1
}

// Clients counts the connections that lead to loopback addresses, from their clients' end. Those
// of user exceptUID do not count; -1 excepts nobody.
func Clients(exceptUID int) (Uses, error) {
	uses := Uses{}
	err := dump(1<<unix.BPF_TCP_ESTABLISHED, toLoopback, func(s socket) {
		if exceptUID < 0 || s.uid != uint32(exceptUID) {
			uses[s.remote]++
		}
	})
	return uses, err
}

// Listeners are the inodes of the sockets that listen at each loopback address and port.
type Listeners map[netip.AddrPort][]uint32

// Listening says who listens at loopback addresses.
func Listening() (Listeners, error) {
	all := Listeners{}
	err := dump(1<<unix.BPF_TCP_LISTEN, fromLoopback, func(s socket) {
		all[s.local] = append(all[s.local], s.inode)
	})
	return all, err
}

// State is the state of the one TCP socket of this network namespace that packets from remote to
// local would reach: one of a connection, or else a listener. The error is unix.ENOENT when there is
// neither.
func State(local, remote netip.AddrPort) (state uint8, err error) {
	request := newRequest(unix.NLM_F_REQUEST, allStates, id{local, remote, loopbackIndex}, nil)
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

// Inode is the number of a socket, as Listening gives it.
func Inode(file *os.File) (uint32, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("looking at a socket: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("looking at a socket: it has no inode")
	}
	return uint32(stat.Ino), nil
}
