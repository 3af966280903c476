package supervise

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// arrivals tells of connections that wait at listeners from which nobody accepts.
type arrivals struct {
	epoll, stop int
	ended       chan struct{}
}

// newArrivals calls tell, from a goroutine of its own, with the descriptor of each listener that
// was armed and at which a connection waits.
func newArrivals(tell func(fd int32)) (*arrivals, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("waiting for connections: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for connections: %w", err), unix.Close(epoll))
	}
	a := &arrivals{epoll: epoll, stop: stop, ended: make(chan struct{})}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(stop)}); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for connections: %w", err), unix.Close(stop), unix.Close(epoll))
	}
	go a.run(tell)
	return a, nil
}

func (a *arrivals) run(tell func(fd int32)) {
	defer close(a.ended)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(a.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // it was closed
		}
		for _, e := range events[:n] {
			if int(e.Fd) == a.stop {
				return
			}
			tell(e.Fd)
		}
	}
}

// arm has the next connection told, or one that waits already; once.
func (a *arrivals) arm(l *listener) error {
	fd := int(l.file.Fd())
	event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	err := unix.EpollCtl(a.epoll, unix.EPOLL_CTL_MOD, fd, event)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(a.epoll, unix.EPOLL_CTL_ADD, fd, event)
	}
	if err != nil {
		return fmt.Errorf("waiting for connections to %s: %w", l.address, err)
	}
	return nil
}

// forget must come before the listener is closed: a stunnel that holds it, too, would keep it here.
func (a *arrivals) forget(l *listener) {
	// It need not have been armed.
	_ = unix.EpollCtl(a.epoll, unix.EPOLL_CTL_DEL, int(l.file.Fd()), nil)
}

// close ends the goroutine.
func (a *arrivals) close() {
	// An eventfd takes any eight bytes that are no zero; what else could go wrong has ended run.
	_, _ = unix.Write(a.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-a.ended
	_ = unix.Close(a.stop)
	_ = unix.Close(a.epoll)
}
