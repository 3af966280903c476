package terminator

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
)

// Answer names the kind of answer to a client that asks for its partition.
type Answer string

// The answers.
const (
	AnswerReady      Answer = "ready"
	AnswerRetry      Answer = "retry"
	AnswerRetryLater Answer = "retry-later"
	AnswerError      Answer = "error"
)

// Answers lists all answers.
func Answers() []Answer { return []Answer{AnswerReady, AnswerRetry, AnswerRetryLater, AnswerError} }

// Partitions describes the treatment of clients with several connections, as Amazon EFS has it: each connection leads
// to one of several partitions, which the client can ask for, and a client's requests work on one of them only. The
// zero Partitions is a mount target that does not know the question, which the NFS server then answers.
type Partitions struct {
	Count  int    `json:"count"`
	Answer Answer `json:"answer"`
	// Lanes and BytesPerSecond are the numbers in each answer: how many connections a client may have, and from
	// which rate on.
	Lanes          uint32 `json:"lanes"`
	BytesPerSecond uint32 `json:"bytesPerSecond"`
}

// SetPartitions changes the partitions of new connections.
func (t *Target) SetPartitions(p Partitions) error {
	if p.Count < 0 || p.Count > 100 {
		return fmt.Errorf("mount target %s: %d partitions; want 0 to 100", t.ID, p.Count)
	}
	if err := oneof.Check("answer", p.Answer, Answers()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions, t.homes, t.wrong = p, map[string]int{}, 0
	return nil
}

// SetRate limits what each open and new connection sends to its client, in bytes per second; 0 is no limit.
func (t *Target) SetRate(rate int) error {
	if rate < 0 {
		return fmt.Errorf("rate of mount target %s: %d is less than 0", t.ID, rate)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = rate
	return nil
}

// pace waits until a connection that is free to send from a time on may have sent some more bytes, and returns from when
// on it is free again.
func (c *connection) pace(free time.Time, bytes int) time.Time {
	c.target.mu.Lock()
	rate := c.target.rate
	c.target.mu.Unlock()
	if rate > 0 {
		free = paced(free, time.Now(), bytes, rate)
		c.hold(free)
	}
	return free
}

// paced returns when a connection has sent bytes at a rate. Time in which it sent nothing is no credit.
func paced(free, now time.Time, bytes, rate int) time.Time {
	if free.Before(now) {
		free = now
	}
	return free.Add(time.Duration(bytes) * time.Second / time.Duration(rate))
}

// assign returns the partitions, and that to which a new connection leads.
func (t *Target) assign() (Partitions, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.partitions.Count == 0 {
		return Partitions{}, 0
	}
	t.assigned++
	return t.partitions, t.assigned % t.partitions.Count
}

// isHome reports whether a client's requests work on a partition: on that of its first one.
func (t *Target) isHome(client string, partition int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	home, ok := t.homes[client]
	if !ok {
		t.homes[client] = partition
		return true
	}
	if home != partition {
		t.wrong++
	}
	return home == partition
}

// afterGreeting is a client's side of a connection, without its greetings.
type afterGreeting struct {
	*tls.Conn
	rest io.Reader
}

func (g afterGreeting) Read(p []byte) (int, error) { return g.rest.Read(p) }

// The call that asks for the partition of a connection: bind_client_to_partition of awsfile_prot.x in efs-utils.
const (
	bindProgram, bindProcedure = 400123, 2
	markBytes, headerBytes     = 4, 28
	clientAt                   = 44 // in the record: after an empty credential and verifier
	maxGreeting                = 1024
)

var errWrongPartition = errors.New("the requests of this client work on another partition")

// greet answers the greetings with which a client begins, and returns its side of the connection after them.
func (c *connection) greet(secure *tls.Conn) (duplex, error) {
	partitions, partition := c.target.assign()
	if partitions.Count == 0 {
		return secure, nil
	}
	client := ""
	for {
		record := make([]byte, headerBytes, maxGreeting)
		if n, err := io.ReadFull(secure, record); err != nil {
			return afterGreeting{secure, bytes.NewReader(record[:n])}, nil //nolint:nilerr // the client has ended
		}
		size := markBytes + int(binary.BigEndian.Uint32(record)&^lastFragment)
		if word(record, 16) != bindProgram || word(record, 24) != bindProcedure || size > maxGreeting || size < clientAt {
			if client != "" && !c.target.isHome(client, partition) {
				return nil, errWrongPartition
			}
			return afterGreeting{secure, io.MultiReader(bytes.NewReader(record), secure)}, nil
		}
		record = record[:size]
		if _, err := io.ReadFull(secure, record[headerBytes:]); err != nil {
			return nil, err
		}
		client = string(record[clientAt:])
		c.target.gate.pass(c.done)
		if _, err := secure.Write(partitions.reply(word(record, markBytes), partition)); err != nil {
			return nil, err
		}
	}
}

// reply returns the record that answers a greeting.
func (p Partitions) reply(xid uint32, partition int) []byte {
	kinds := map[Answer]uint32{AnswerRetry: 0, AnswerRetryLater: 1, AnswerReady: 3, AnswerError: 4}
	b := words(0, xid, 1, 0, 0, 0, 0, kinds[p.Answer])
	if p.Answer == AnswerReady {
		b = append(b, make([]byte, 64)...)
		binary.BigEndian.PutUint32(b[len(b)-64:], uint32(partition)+1)
	} else {
		b = append(b, words(4, 0x62757379)...) // the text "busy"
	}
	b = append(b, words(p.Lanes, p.BytesPerSecond, 1, 1)...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-markBytes)|lastFragment)
	return b
}

func word(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}
