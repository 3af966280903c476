// Package front accepts the NFS connections of a tunnel in place of its stunnel, and passes them on to
// that stunnel over several connections (package lanes has what decides). stunnel inherits a private
// unix socket instead of the tunnel's listener, and has the same configuration.
//
// The connection of a mount ends when stunnel ends, when a lane ends on which anything waits, or when
// the client sends what is no message of RPC. No other connection ends with it.
package front

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

// maxMounts bounds the connections of a tunnel. The kernel has one for each file system and user namespace.
const maxMounts = 128

// backlog is the number of lanes that can wait while stunnel starts.
const backlog = 128

// Front passes on the connections of one tunnel.
type Front struct {
	listener net.Listener
	inner    *os.File // that stunnel listens on
	path     string   // of inner
	lanes    int
	pinned   atomic.Int32
	servers  atomic.Int64 // changes of the servers
	busyRate atomic.Int64 // below that of package lanes, for tests of pinned servers; 0 for that
	log      *slog.Logger
	client   lanes.Client

	incarnation atomic.Uint64 // counts connections
	restUntil   atomic.Int64  // no greeting and no more lanes until then, because the last greeting had no answer of use

	mounts, openLanes, waiting atomic.Int64

	latency latency
}

// Start accepts connections of a listening socket, of which it takes a copy. It listens on a unix
// socket at a path, which no earlier front may use any more.
func Start(socket *os.File, path string, maxLanes int, log *slog.Logger) (*Front, error) {
	f := &Front{path: path, lanes: maxLanes, log: log}
	_, _ = rand.Read(f.client.ID[:]) // never fails
	var err error
	if f.inner, err = listenUnix(path); err != nil {
		return nil, fmt.Errorf("listening for lanes: %w", err)
	}
	if f.listener, err = net.FileListener(socket); err != nil {
		return nil, errors.Join(fmt.Errorf("accepting for lanes: %w", err), f.closeInner())
	}
	go f.accept()
	return f, nil
}

// listenUnix listens on a socket that only this user may connect to.
func listenUnix(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	err = cmp.Or(unix.Fchmod(fd, 0o600), unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, backlog))
	if err == nil {
		err = unix.SetNonblock(fd, true) // as stunnel expects it
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Socket returns the socket that stunnel inherits. It stays the front's.
func (f *Front) Socket() *os.File { return f.inner }

// SetPinned sets how many lanes the table says that the server takes without partitions, 0 for none.
func (f *Front) SetPinned(n int) { f.pinned.Store(int32(n)) }

// ServersChanged keeps mounts of pinned servers from getting more lanes: no partition would tell that they lead to
// the server that has the client's session.
func (f *Front) ServersChanged() { f.servers.Add(1) }

// Close stops accepting. Connections that are open end with stunnel.
func (f *Front) Close() error { return errors.Join(f.listener.Close(), f.closeInner()) }

func (f *Front) closeInner() error { return errors.Join(f.inner.Close(), os.Remove(f.path)) }

// acceptRetry is the delay after a connection could not be accepted, for want of descriptors.
const acceptRetry = 100 * time.Millisecond

func (f *Front) accept() {
	for {
		conn, err := f.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EINVAL):
			return // closed, or shut down by the supervisor
		case err != nil:
			f.log.Warn("accepting a connection failed", "err", err)
			<-time.After(acceptRetry)
		case f.mounts.Load() == maxMounts: // only accept adds to them
			f.log.Warn("connection closed, as there are too many", "used", maxMounts)
			_ = conn.Close()
		default:
			f.mounts.Add(1)
			go func() {
				defer f.mounts.Add(-1)
				newMount(f, conn).run()
			}()
		}
	}
}

// Status returns what the front does now, and has done since its start.
func (f *Front) Status() *tunnelspec.Lanes {
	s := &tunnelspec.Lanes{Open: f.openLanes.Load(), Waiting: f.waiting.Load(), Seconds: time.Duration(f.latency.sum.Load()).Seconds()}
	for i := range f.latency.counts {
		s.Counts = append(s.Counts, f.latency.counts[i].Load())
	}
	return s
}

// latency counts how long requests waited for their answers.
type latency struct {
	sum    atomic.Int64
	counts [tunnelspec.LatencyBuckets + 1]atomic.Uint64 // the last one is of those above all bounds
}

func (l *latency) observe(waited time.Duration) {
	i, bound := 0, tunnelspec.FirstLatency
	for i < tunnelspec.LatencyBuckets && waited > bound {
		i, bound = i+1, 2*bound
	}
	l.counts[i].Add(1)
	l.sum.Add(int64(waited))
}

// prepare opens the first lane before the first record that needs one. Calls of the null procedure need no
// greeting: probes send nothing else, and must not take longer for it.
func (m *mount) prepare(h lanes.Header) error {
	if m.greeted || h.Null && m.count() > 0 {
		return nil
	}
	want, answer := 1, lanes.Answer{}
	if !h.Null {
		m.greeted = true
		want, answer = m.greet()
	}
	if m.count() == 0 {
		conn, err := m.front.dial()
		if err != nil {
			return err
		}
		m.add(conn)
	}
	if want > 1 {
		go m.scale(lanes.NewScaler(want, answer))
	}
	return nil
}

// greet returns how many lanes the mount may have. Of a server with partitions, it opens the first one.
func (m *mount) greet() (int, lanes.Answer) {
	f := m.front
	if pinned := int(f.pinned.Load()); pinned > 1 {
		return min(pinned, f.lanes), lanes.Answer{BytesPerSecond: f.busyRate.Load()}
	}
	now := time.Now()
	if now.UnixNano() < f.restUntil.Load() {
		return 1, lanes.Answer{}
	}
	conn, answer, err := f.dialGreeted(m.id)
	for n := 1; answer.Retry && n < maxGreetings; n++ {
		conn, answer, err = f.dialGreeted(m.id)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return 1, lanes.Answer{} // stunnel has not reached the server, or ends: the next connection asks again
	}
	if err != nil {
		f.restUntil.Store(now.Add(lanes.SearchPause).UnixNano())
		f.log.Info("connections have one lane for now", "err", err, "requeueAfter", lanes.SearchPause)
		return 1, lanes.Answer{}
	}
	if !m.dropIdle() {
		_ = conn.Close() // a call of the null procedure waits on a lane without a partition
		return 1, lanes.Answer{}
	}
	m.partition = answer.Partition
	m.add(conn)
	return f.lanes, answer
}

func (m *mount) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lanes)
}

// dropIdle drops all lanes if nothing waits on any.
func (m *mount) dropIdle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.schedule.Waiting() > 0 {
		return false
	}
	for id := range m.lanes {
		m.drop(id)
	}
	return true
}

// drop closes a lane, and reports whether anything waited on it. The caller holds mu.
func (m *mount) drop(id int) (wasBusy bool) {
	_ = m.lanes[id].conn.Close()
	delete(m.lanes, id)
	m.front.openLanes.Add(-1)
	waiting := m.schedule.Waiting()
	wasBusy = m.schedule.Remove(id)
	m.front.waiting.Add(int64(m.schedule.Waiting() - waiting))
	return wasBusy
}

// scale adds and drops lanes until the mount ends.
func (m *mount) scale(s lanes.Scaler) {
	defer m.recover()
	ticker := time.NewTicker(lanes.SampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-m.done:
			return
		case now := <-ticker.C:
			switch n := s.Sample(now, m.bytes.Swap(0), m.count()); {
			case n > 0 && m.sessions.Load() && m.hasServer() && now.UnixNano() >= m.front.restUntil.Load():
				if !m.grow(n) {
					s.Rest(time.Now().Add(lanes.SearchPause))
				}
				m.front.log.Info("lanes added", "used", m.count())
			case n < 0:
				m.dropSpare()
			}
		}
	}
}

func (m *mount) dropSpare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.schedule.Spare(); ok {
		m.drop(id)
	}
}

// opened is the outcome of a connection that a search has asked for.
type opened struct {
	conn   net.Conn
	answer lanes.Answer
	err    error
}

// grow searches more lanes of the mount's partition. It reports whether it found as many.
func (m *mount) grow(n int) bool {
	search, results := lanes.NewSearch(m.partition, n, time.Now()), make(chan opened)
	for {
		for range search.Open(time.Now()) {
			go func() { m.open(results) }()
		}
		if search.Opening() == 0 {
			return search.Found()
		}
		select {
		case <-m.done:
			return true
		case o := <-results:
			m.opened(search, o)
		}
	}
}

func (m *mount) open(results chan<- opened) {
	defer m.recover()
	var o opened
	if m.partition == nil {
		o.conn, o.answer, o.err = m.front.dialAnswered(lanes.Null)
	} else {
		o.conn, o.answer, o.err = m.front.dialGreeted(m.id)
	}
	select {
	case results <- o:
	case <-m.done:
		if o.err == nil {
			_ = o.conn.Close()
		}
	}
}

func (m *mount) opened(search *lanes.Search, o opened) {
	switch {
	case o.err != nil:
		search.Failed()
	case search.Opened(o.answer) && m.hasServer():
		m.add(o.conn)
	default:
		_ = o.conn.Close()
	}
}
