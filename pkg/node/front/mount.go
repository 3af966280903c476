package front

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// recordTimeout bounds how long a client may send nothing within a record.
const recordTimeout = time.Minute

// mount is a connection of a client, usually the kernel's, with its lanes.
type mount struct {
	front  *Front
	client net.Conn
	id     lanes.Client
	chunks chan []byte // that are free: the bound of what waits to be written to lanes; nil ones are not allocated yet
	bytes  atomic.Int64
	done   chan struct{} // closed by end
	finish sync.Once

	out sync.Mutex // held to write to client

	mu        sync.Mutex
	schedule  lanes.Schedule   // guarded by mu
	lanes     map[int]*lane    // guarded by mu
	lastID    int              // guarded by mu
	answered  loop.Wake        // after an answer, of a reader that waits for room
	partition *lanes.Partition // of the client's session; nil without
	greeted   bool             // the lanes are those for requests, not only for calls of the null procedure
	sessions  atomic.Bool
	servers   int64 // Front.servers at the beginning
}

func newMount(f *Front, client net.Conn) *mount {
	m := &mount{
		front: f, client: client, id: f.client, chunks: make(chan []byte, maxChunks),
		done: make(chan struct{}), answered: loop.NewWake(), lanes: map[int]*lane{},
	}
	m.id.Incarnation, m.servers = f.incarnation.Add(1), f.servers.Load()
	for range maxChunks {
		m.chunks <- nil
	}
	return m
}

// hasServer reports whether a new connection leads to the server of the mount, or tells its partition.
func (m *mount) hasServer() bool { return m.partition != nil || m.servers == m.front.servers.Load() }

func (m *mount) run() {
	defer m.recover()
	m.end(m.passRequests())
}

// recover ends this connection, and not the program, after a fault of the front itself.
func (m *mount) recover() {
	if fault := recover(); fault != nil {
		m.end(fmt.Errorf("fault of the front: %v", fault))
	}
}

// end closes the client's connection and all lanes.
func (m *mount) end(reason error) {
	m.finish.Do(func() {
		if reason != nil && !errors.Is(reason, io.EOF) && !errors.Is(reason, net.ErrClosed) {
			m.front.log.Debug("connection ended", "err", reason)
		}
		close(m.done)
		_ = m.client.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, l := range m.lanes {
			_ = l.conn.Close()
		}
		m.front.openLanes.Add(-int64(len(m.lanes)))
		m.front.waiting.Add(-int64(m.schedule.Waiting()))
		m.lanes, m.schedule = nil, lanes.Schedule{}
	})
}

// passRequests writes each record to the lane that the schedule chooses.
func (m *mount) passRequests() error {
	var f lanes.Framer
	var to *lane // of the present record; nil between records
	buffer := make([]byte, chunkBytes)
	held := 0
	for {
		n, err := m.client.Read(buffer[held:])
		if err != nil {
			return err
		}
		m.bytes.Add(int64(n))
		rest := buffer[:held+n]
		for len(rest) > 0 {
			if to == nil {
				if to, err = m.laneFor(rest); err != nil {
					return err
				}
				if to == nil {
					break // the header is not whole
				}
			}
			size, end, err := f.Next(rest)
			if err == nil {
				err = m.send(to, rest[:size])
			}
			if err != nil {
				return err
			}
			if rest = rest[size:]; end {
				to = nil
			}
		}
		held = copy(buffer, rest)
		if err := m.limitRecord(held > 0 || to != nil); err != nil {
			return err
		}
	}
}

func (m *mount) limitRecord(begun bool) error {
	if begun {
		return m.client.SetReadDeadline(time.Now().Add(recordTimeout))
	}
	return m.client.SetReadDeadline(time.Time{})
}

// laneFor returns the lane for the record that begins with the bytes, nil if they are too few. It waits while too
// many requests wait for answers.
func (m *mount) laneFor(record []byte) (*lane, error) {
	h, ok, err := lanes.ParseHeader(record)
	if !ok || err != nil {
		return nil, err
	}
	if h.Sessions {
		m.sessions.Store(true)
	}
	if err := m.prepare(h); err != nil {
		return nil, err
	}
	for {
		l, err := m.route(h)
		if !errors.Is(err, lanes.ErrFull) {
			return l, err
		}
		select {
		case <-m.done:
			return nil, net.ErrClosed
		case <-m.answered:
		}
	}
}

func (m *mount) route(h lanes.Header) (*lane, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.schedule.Waiting()
	id, err := m.schedule.Route(h, time.Now())
	if err != nil {
		return nil, err
	}
	m.front.waiting.Add(int64(m.schedule.Waiting() - before))
	return m.lanes[id], nil
}

// send queues bytes for a lane. A lane may end while the client writes what nothing waits for, as its reply to a
// call of the server: the rest goes nowhere.
func (m *mount) send(l *lane, p []byte) error {
	select {
	case <-m.done:
		return net.ErrClosed
	case chunk := <-m.chunks:
		if chunk == nil {
			chunk = make([]byte, 0, chunkBytes)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lanes[l.id] != l {
			m.chunks <- chunk
			return nil
		}
		l.queue <- append(chunk[:0], p...)
		return nil
	}
}

func (m *mount) toClient(p []byte) error {
	m.out.Lock()
	defer m.out.Unlock()
	_, err := m.client.Write(p)
	return err
}

func (m *mount) receivedRecord(l *lane, record []byte) error {
	h, ok, err := lanes.ParseHeader(record)
	if err != nil || !ok {
		return errors.Join(err, errors.New("the server sent what is no message of RPC"))
	}
	m.mu.Lock()
	waited, isAnswer := m.schedule.Received(l.id, h, time.Now())
	m.mu.Unlock()
	if isAnswer {
		m.front.waiting.Add(-1)
		m.front.latency.observe(waited)
		m.answered.Request()
	}
	return nil
}

// add begins to use a connection. It closes the connection of a mount that has ended.
func (m *mount) add(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lanes == nil {
		_ = conn.Close()
		return
	}
	m.lastID++
	l := &lane{m.lastID, conn, make(chan []byte, maxChunks), make(chan struct{})}
	m.lanes[l.id] = l
	m.schedule.Add(l.id)
	m.front.openLanes.Add(1)
	go m.write(l)
	go m.read(l)
}

// lost removes a lane that has ended. With it ends the client's connection if anything waits for an answer on the
// lane, because the client must send that again, or if the lane was the last.
func (m *mount) lost(l *lane) {
	if m.remove(l) {
		m.end(errors.New("lane with requests ended"))
	}
}

// remove reports whether the mount cannot go on without the lane.
func (m *mount) remove(l *lane) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lanes[l.id] != l {
		_ = l.conn.Close()
		return false // was dropped, or the mount has ended
	}
	return m.drop(l.id) || len(m.lanes) == 0
}
