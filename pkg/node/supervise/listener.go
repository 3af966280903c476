package supervise

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

// backlog is the number of connections that can wait while stunnel starts. The NFS client opens one
// or two for each file system.
const backlog = 128

// listener is the socket that listens on a tunnel's port. The supervisor owns the socket and passes
// it to each stunnel process in turn, so that the port stays open between two processes: a refused
// connection costs the kernel's NFS client 3 s, a waiting one only the start of stunnel.
type listener struct {
	file    *os.File
	address netip.AddrPort
	inode   uint32
}

// listen opens a tunnel's port. The supervisors of two pods can share the port during a hand-over,
// as they run as the same user. The error is EADDRINUSE if any other process has the port.
func listen(address netip.AddrPort) (*listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	if err := prepare(fd, address); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", address, err), unix.Close(fd))
	}
	return adopt(os.NewFile(uintptr(fd), address.String()), address)
}

func prepare(fd int, address netip.AddrPort) error {
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	// This drops packets that arrive from the network for a loopback address. Kernels before 5.7
	// demand CAP_NET_RAW for it, which the pod does not have; there, such packets are dropped unless
	// route_localnet is set.
	if err := unix.BindToDevice(fd, "lo"); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("binding to the loopback interface: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

// adopt returns the listener of an open socket, or an error if that does not listen at the address.
func adopt(file *os.File, address netip.AddrPort) (*listener, error) {
	inode, err := sockets.Inode(file)
	if err == nil {
		err = checkSocket(int(file.Fd()), address)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adopting the socket of %s: %w", address, err), file.Close())
	}
	return &listener{file: file, address: address, inode: inode}, nil
}

// checkSocket verifies that a socket listens at an address, and makes it non-blocking, as stunnel expects.
func checkSocket(fd int, address netip.AddrPort) error {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	at, ok := bound.(*unix.SockaddrInet4)
	if listening == 0 || !ok || netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)) != address {
		return errors.New("the socket does not listen there")
	}
	return unix.SetNonblock(fd, true)
}

// shutdown makes the socket stop listening, although stunnel and the agent hold copies of it, so
// that new connections reach the other supervisor. With a close alone, those copies would keep
// queueing connections, which are reset when stunnel exits.
func (l *listener) shutdown() error {
	err := unix.Shutdown(int(l.file.Fd()), unix.SHUT_RD)
	return errors.Join(err, l.file.Close())
}

// storeSockets gives the agent copies of the open sockets, and closes the inherited sockets that no
// tunnel has taken over.
func (s *supervisor) storeSockets() {
	s.inherited.Close()
	s.inherited = nil
	open := fdstore.Sockets{}
	for _, t := range s.tunnels {
		if t.socket != nil {
			open[t.socket.address] = t.socket.file
		}
	}
	if s.stored == nil || !maps.Equal(open, s.stored) {
		s.stored = open
		s.store.Store(open)
	}
}

// connWatcher reports connections that wait at listeners from which no stunnel accepts.
type connWatcher struct {
	epoll, stop int
	ended       chan struct{}
}

// newConnWatcher starts a goroutine that calls notify with the descriptor of each armed listener at
// which a connection waits.
func newConnWatcher(notify func(fd int32)) (*connWatcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("waiting for connections: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for connections: %w", err), unix.Close(epoll))
	}
	w := &connWatcher{epoll: epoll, stop: stop, ended: make(chan struct{})}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(stop)}); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for connections: %w", err), unix.Close(stop), unix.Close(epoll))
	}
	go w.run(notify)
	return w, nil
}

func (w *connWatcher) run(notify func(fd int32)) {
	defer close(w.ended)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // the epoll descriptor is closed
		}
		for _, e := range events[:n] {
			if int(e.Fd) == w.stop {
				return
			}
			notify(e.Fd)
		}
	}
}

// arm requests one notification: of a connection that waits already, or of the next one.
func (w *connWatcher) arm(socket *os.File) error {
	fd := int(socket.Fd())
	event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, fd, event)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, event)
	}
	if err != nil {
		return fmt.Errorf("waiting for connections to %s: %w", socket.Name(), err)
	}
	return nil
}

// remove must be called before the socket is closed: epoll drops a socket only when the last
// descriptor is closed, and stunnel may hold another one.
func (w *connWatcher) remove(socket *os.File) {
	// The error says that the socket was never armed.
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(socket.Fd()), nil)
}

func (w *connWatcher) close() {
	// Any nonzero value wakes the goroutine; if the write fails, run has returned already.
	_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.ended
	_ = unix.Close(w.stop)
	_ = unix.Close(w.epoll)
}
