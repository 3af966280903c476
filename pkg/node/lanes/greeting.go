package lanes

import (
	"encoding/binary"
	"errors"
)

// The program of Amazon EFS for clients with several connections.
const (
	bindProgram, bindVersion, bindProcedure = 400123, 1, 2

	partitionBytes = 64
)

// Client is what a client calls itself on all its connections.
type Client struct {
	ID          [16]byte
	Incarnation uint64
}

// Partition is the part of a server to which a connection leads.
type Partition [partitionBytes]byte

// Greeting returns the call that asks for the partition of a connection, as a record.
func Greeting(xid uint32, c Client) []byte {
	b := make([]byte, markBytes, markBytes+72)
	// A call of version 2 of RPC, with an empty credential and verifier.
	for _, v := range []uint32{xid, 0, 2, bindProgram, bindVersion, bindProcedure, 0, 0, 0, 0, uint32(len(c.ID))} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(b, c.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint64(b, c.Incarnation)
	binary.BigEndian.PutUint32(b, uint32(len(b)-markBytes)|lastFragment)
	return b
}

// Answer is a server's answer to a greeting.
type Answer struct {
	// Partition is nil if the server has none for this connection: it does not know the call, or asks
	// to try again.
	Partition *Partition
	Lanes     int // the most that the server wants of a client
	// BytesPerSecond is the rate of a client from which it may have more than one connection.
	BytesPerSecond int64
}

// What a server answers: its own words for retry, retry later, preferred, ready and error.
const (
	bindPreferred = 2
	bindReady     = 3
)

var errAnswer = errors.New("the answer to a greeting is no answer of RPC")

// ParseAnswer reads an answer, a record of one fragment. The error is about one that is none.
func ParseAnswer(record []byte, xid uint32) (Answer, error) {
	r := reader{record[min(len(record), markBytes):], nil}
	if got, kind := r.uint32(), r.uint32(); r.err != nil || got != xid || kind != 1 {
		return Answer{}, errAnswer
	}
	denied := r.uint32() != 0
	r.uint32()
	r.opaque() // verifier
	if failed := r.uint32() != 0; denied || failed || r.err != nil {
		return Answer{}, nil //nolint:nilerr // the server does not know the program
	}
	var a Answer
	switch r.uint32() {
	case bindPreferred, bindReady:
		if b := r.bytes(partitionBytes); b != nil {
			a.Partition = (*Partition)(b)
		}
	default:
		return Answer{}, nil
	}
	a.Lanes, a.BytesPerSecond = int(int32(r.uint32())), int64(int32(r.uint32()))*1000
	if r.err != nil {
		return Answer{}, errAnswer
	}
	return a, nil
}
