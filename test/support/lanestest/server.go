// Package lanestest has a server and a client of NFS messages for tests of lanes. The server has partitions as
// Amazon EFS has: it tells them to clients that greet it, and a client's session works on one of them only. Its
// messages have the headers of NFS 4.1 and a body of any size.
package lanestest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

const (
	lastFragment = 1 << 31
	greetProgram = 400123
	nfsProgram   = 100003
)

// Ready is the kind of an answer that names a partition; Retry, RetryLater and Error are those of others.
const (
	Retry      = 0
	RetryLater = 1
	Ready      = 3
	Error      = 4
)

// Server answers calls. Set its fields before it serves.
type Server struct {
	Partitions int    // 0: it does not know the greeting
	Kind       uint32 // of its answers to greetings
	Lanes      uint32 // that it wants of a client at most
	BusyRate   uint32 // bytes per second from which a client may have more
	Rate       int    // bytes per second of each connection, 0 without limit
	Most       int    // connections on which it answers, 0 without limit
	Refused    int    // connections that it closes first
	Retries    int    // greetings that it answers with Retry first
	Instead    []byte // of an answer to a greeting; without bytes, but not nil, it gives none

	mu       sync.Mutex
	hold     <-chan struct{}  // guarded by mu; nil: answer at once
	conns    []*Conn          // guarded by mu; also those that have ended
	sessions map[string]int   // guarded by mu; the partition of each client
	wrong    int              // guarded by mu
	replies  map[uint32]*Conn // guarded by mu; where the reply to each call of the server came
}

// Conn is a connection of a server.
type Conn struct {
	net.Conn
	Partition int
	Greeted   bool
	Requests  int
	Nulls     int
	Bytes     int // of answers
	Ended     bool
	client    string
}

// Conns returns a copy of what the server knows of its connections, in the order in which they came.
func (s *Server) Conns() []Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Conn
	for _, c := range s.conns {
		all = append(all, *c)
	}
	return all
}

// Wrong returns how many requests came to another partition than that of their session.
func (s *Server) Wrong() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// Serve serves a connection until it ends.
func (s *Server) Serve(raw net.Conn) {
	c := &Conn{Conn: raw}
	s.mu.Lock()
	if s.Partitions > 0 {
		c.Partition = len(s.conns) % s.Partitions
	}
	s.conns = append(s.conns, c)
	silent := s.Most > 0 && len(s.conns) > s.Most
	refused := len(s.conns) <= s.Refused
	s.mu.Unlock()
	defer func() {
		raw.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		c.Ended = true
	}()
	if refused {
		return
	}
	if silent {
		_, _ = io.Copy(io.Discard, raw)
		return
	}
	began, sent := time.Now(), 0
	for {
		message, err := ReadRecord(raw)
		if err != nil {
			return
		}
		answer := s.answer(c, message)
		if len(answer) == 0 {
			continue
		}
		if _, err := raw.Write(answer); err != nil {
			return
		}
		if sent += len(answer); s.Rate > 0 {
			<-time.After(time.Duration(sent)*time.Second/time.Duration(s.Rate) - time.Since(began))
		}
	}
}

// answer returns the record that answers a message; nil for none.
func (s *Server) answer(c *Conn, m []byte) []byte {
	xid := word(m, 0)
	if word(m, 4) != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.replies == nil {
			s.replies = map[uint32]*Conn{}
		}
		s.replies[xid] = c
		return nil
	}
	switch {
	case word(m, 12) == greetProgram:
		return s.greeted(c, xid, m)
	case word(m, 20) == 0:
		s.mu.Lock()
		defer s.mu.Unlock()
		c.Nulls++
		return record(words(xid, 1, 0, 0, 0, 0))
	}
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	answer := Answer(xid, int(word(m, len(m)-4)))
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Requests++
	c.Bytes += len(answer)
	if s.isWrong(c) {
		s.wrong++
		return record(words(xid, 1, 0, 0, 0, 5)) // a system error
	}
	return answer
}

// isWrong assigns a client's session to the partition of its first request. The caller holds mu.
func (s *Server) isWrong(c *Conn) bool {
	if c.client == "" {
		return false
	}
	if s.sessions == nil {
		s.sessions = map[string]int{}
	}
	home, ok := s.sessions[c.client]
	if !ok {
		s.sessions[c.client] = c.Partition
	}
	return ok && home != c.Partition
}

func (s *Server) greeted(c *Conn, xid uint32, m []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Greeted = true
	if s.Instead != nil {
		return s.Instead
	}
	if s.Partitions == 0 {
		return record(words(xid, 1, 0, 0, 0, 1)) // no such program
	}
	c.client = string(m[44:])
	kind := s.Kind
	if s.Retries > 0 {
		s.Retries, kind = s.Retries-1, Retry
	}
	outcome := words(kind, 4, 0x62757379) // busy
	if kind == Ready {
		outcome = append(words(s.Kind), make([]byte, 64)...)
		outcome[4] = byte(c.Partition)
	}
	return record(words(xid, 1, 0, 0, 0, 0), outcome, words(s.Lanes, s.BusyRate, 1, 1))
}

// SetHold keeps the server from answering calls of NFS until the channel is closed.
func (s *Server) SetHold(until <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = until
}

// Call sends a call of the server on a connection.
func (s *Server) Call(i int, xid uint32) error {
	s.mu.Lock()
	conn := s.conns[i].Conn
	s.mu.Unlock()
	_, err := conn.Write(Call(xid))
	return err
}

// Call returns a call of the server.
func Call(xid uint32) []byte { return record(words(xid, 0, 2, nfsProgram, 1, 1, 0, 0, 0, 0)) }

// Replied returns on which connection the reply to a call of the server came, -1 while it has not.
func (s *Server) Replied(xid uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.conns {
		if s.replies[xid] == c {
			return i
		}
	}
	return -1
}

// Kill closes a connection.
func (s *Server) Kill(i int) {
	s.mu.Lock()
	conn := s.conns[i].Conn
	s.mu.Unlock()
	conn.Close()
}

func word(m []byte, at int) uint32 {
	if at+4 > len(m) {
		return 0
	}
	return binary.BigEndian.Uint32(m[at:])
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func record(parts ...[]byte) []byte {
	b := make([]byte, 4)
	for _, part := range parts {
		b = append(b, part...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)|lastFragment)
	return b
}

// Answer returns the answer to a call, with a body of some bytes.
func Answer(xid uint32, size int) []byte {
	return record(words(xid, 1, 0, 0, 0, 0), body(xid, size))
}

// body returns what only the answer to one request has.
func body(xid uint32, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(uint32(i)*7 + xid)
	}
	return b
}

// ReadRecord returns the next record of a stream, of one fragment and without its mark.
func ReadRecord(r io.Reader) ([]byte, error) {
	mark := make([]byte, 4)
	if _, err := io.ReadFull(r, mark); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint32(mark)&^lastFragment)
	_, err := io.ReadFull(r, m)
	return m, err
}
