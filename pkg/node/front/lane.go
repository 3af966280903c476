package front

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

// What a mount holds in memory: at most 1.2 MiB with five lanes.
const (
	chunkBytes = 32 << 10
	maxChunks  = 12
	// answerBytes is the length up to which an answer is whole before any of it goes to the client. Of a longer one, the
	// client gets the rest as fast as the lane has it, while answers on the other lanes wait in their buffers and in those of
	// their sockets. Five lanes are five times as fast as one if these have room for four fifths of an answer, which is
	// 1 MiB and for which the sockets alone have too little.
	answerBytes = 160 << 10
)

// Limits of greetings: without an answer of use, the mount has one lane.
const (
	greetTimeout = 2 * time.Second
	maxGreetings = 3 // while the server says that another connection may get one
)

// lane is a connection to stunnel.
type lane struct {
	id    int
	conn  net.Conn
	queue chan []byte // that are to be written; never blocks, as it has room for all chunks
	ended chan struct{}
}

func (f *Front) dial() (net.Conn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: f.path}) // connects at once, or fails
	if err != nil {
		return nil, err // not conn, which would be no nil of the interface
	}
	return conn, nil
}

// dialGreeted opens a connection and asks the server for its partition.
func (f *Front) dialGreeted(c lanes.Client) (net.Conn, lanes.Answer, error) {
	conn, answer, err := f.dialAnswered(func(xid uint32) []byte { return lanes.Greeting(xid, c) })
	if err == nil && answer.Partition == nil {
		err = errors.Join(errors.New("the server names no partition"), conn.Close())
	}
	return conn, answer, err
}

// dialAnswered opens a connection on which the server answers a call: stunnel accepts one before it has reached the
// server.
func (f *Front) dialAnswered(call func(xid uint32) []byte) (net.Conn, lanes.Answer, error) {
	conn, err := f.dial()
	if err != nil {
		return nil, lanes.Answer{}, err
	}
	xid := rand.Uint32() //nolint:gosec // an identifier, no secret
	answer, err := ask(conn, call(xid), xid)
	if err != nil {
		return nil, answer, errors.Join(fmt.Errorf("greeting the server: %w", err), conn.Close())
	}
	return conn, answer, nil
}

func ask(conn net.Conn, call []byte, xid uint32) (lanes.Answer, error) {
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return lanes.Answer{}, err
	}
	if _, err := conn.Write(call); err != nil {
		return lanes.Answer{}, err
	}
	var f lanes.Framer
	answer := make([]byte, 0, 4096)
	for ended := false; !ended; {
		if len(answer) == cap(answer) {
			return lanes.Answer{}, errors.New("its answer is too long")
		}
		n, err := conn.Read(answer[len(answer):cap(answer)])
		if err != nil {
			return lanes.Answer{}, err
		}
		taken, end, err := f.Next(answer[len(answer) : len(answer)+n])
		if err != nil || taken < n {
			return lanes.Answer{}, errors.Join(err, errors.New("its answer is no single record"))
		}
		answer, ended = answer[:len(answer)+n], end
	}
	parsed, err := lanes.ParseAnswer(answer, xid)
	return parsed, errors.Join(err, conn.SetDeadline(time.Time{}))
}

// write writes the queued chunks until the lane has ended, after which none is queued.
func (m *mount) write(l *lane) {
	defer m.recover()
	for {
		select {
		case <-l.ended:
			for len(l.queue) > 0 {
				m.chunks <- <-l.queue
			}
			return
		case chunk := <-l.queue:
			_, err := l.conn.Write(chunk)
			m.chunks <- chunk
			if err != nil {
				m.lost(l) // and so read ends
			}
		}
	}
}

// read passes on what comes from the lane until it ends.
func (m *mount) read(l *lane) {
	defer close(l.ended)
	defer m.recover()
	if err := m.passAnswers(l); !errors.Is(err, io.EOF) {
		m.front.log.Debug("lane ended", "err", err)
	}
	m.lost(l)
}

// passAnswers writes whole records to the client. One that does not fit into the buffer goes in pieces,
// and the other lanes wait until it is whole.
func (m *mount) passAnswers(l *lane) error {
	var f lanes.Framer
	buffer := make([]byte, answerBytes)
	held, scanned := 0, 0
	for {
		if scanned == held { // what came behind a long record may be whole
			n, err := l.conn.Read(buffer[held:])
			if err != nil {
				return err
			}
			m.bytes.Add(int64(n))
			held += n
		}
		whole, err := m.received(l, &f, buffer[:held], scanned)
		if err == nil && whole > 0 {
			err = m.toClient(buffer[:whole])
		}
		held = copy(buffer, buffer[whole:held])
		scanned = held
		if err == nil && held == len(buffer) {
			held, err = m.passLong(l, &f, buffer)
			scanned = 0
		}
		if err != nil {
			m.end(err)
			return err
		}
	}
}

// received records the records that end in the bytes, and returns where the last one does. The first
// bytes have been scanned before.
func (m *mount) received(l *lane, f *lanes.Framer, p []byte, scanned int) (whole int, err error) {
	for scanned < len(p) {
		n, end, err := f.Next(p[scanned:])
		if err != nil {
			return 0, err
		}
		if scanned += n; !end {
			break
		}
		if err := m.receivedRecord(l, p[whole:scanned]); err != nil {
			return 0, err
		}
		whole = scanned
	}
	return whole, nil
}

// passLong passes on a record whose first bytes fill the buffer. It returns how many bytes of the next one the
// buffer has then.
func (m *mount) passLong(l *lane, f *lanes.Framer, buffer []byte) (int, error) {
	m.out.Lock()
	defer m.out.Unlock()
	header := append([]byte(nil), buffer[:lanes.HeaderBytes]...)
	if _, err := m.client.Write(buffer); err != nil {
		return 0, err
	}
	for {
		n, err := l.conn.Read(buffer)
		if err != nil {
			return 0, err
		}
		m.bytes.Add(int64(n))
		taken, end, err := f.Next(buffer[:n])
		if err != nil {
			return 0, err
		}
		if _, err := m.client.Write(buffer[:taken]); err != nil {
			return 0, err
		}
		if end {
			return copy(buffer, buffer[taken:n]), m.receivedRecord(l, header)
		}
	}
}
