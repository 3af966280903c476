package supervise

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
func (w *connWatcher) arm(l *listener) error {
	fd := int(l.file.Fd())
	event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, fd, event)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, event)
	}
	if err != nil {
		return fmt.Errorf("waiting for connections to %s: %w", l.address, err)
	}
	return nil
}

// remove must be called before the listener is closed: epoll drops a socket only when the last
// descriptor is closed, and stunnel may hold another one.
func (w *connWatcher) remove(l *listener) {
	// The error says that the listener was never armed.
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(l.file.Fd()), nil)
}

func (w *connWatcher) close() {
	// Any nonzero value wakes the goroutine; if the write fails, run has returned already.
	_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.ended
	_ = unix.Close(w.stop)
	_ = unix.Close(w.epoll)
}
