// Package lanes decides how the NFS connection of a mount is spread over several connections to its
// server, the lanes: where a record of ONC RPC ends, which lane a request goes to, when lanes are
// added and dropped, and which connections belong to the partition of the server that has the
// client's session. It is pure; package front has the sockets.
//
// A server that has partitions, as Amazon EFS, says in its answer to a greeting to which one a
// connection leads. A client cannot choose: it opens connections until enough lead to the same.
package lanes

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxRecord bounds a record: the largest read or write of an NFS client, 1 MiB, with its headers.
const MaxRecord = 1<<20 + 1<<16

const (
	markBytes    = 4
	lastFragment = 1 << 31
)

// Framer finds the ends of records in a stream (RFC 5531, section 11). The zero Framer is at the
// beginning of a record.
type Framer struct {
	mark [markBytes]byte
	have int  // bytes of the mark that have come
	left int  // bytes of the fragment that are to come
	last bool // the fragment is the record's last
	size int  // of the record, with all marks
}

// Next returns how many bytes of the stream belong to the present record, and whether it ends with
// them. It returns an error for a record that is too long. Call Next with the bytes that follow.
func (f *Framer) Next(p []byte) (n int, end bool, err error) {
	for n < len(p) {
		if f.have < markBytes {
			copied := copy(f.mark[f.have:], p[n:])
			n, f.have = n+copied, f.have+copied
			if f.have < markBytes {
				break
			}
			if err := f.beginFragment(); err != nil {
				return n, false, err
			}
		}
		taken := min(f.left, len(p)-n)
		n, f.left = n+taken, f.left-taken
		if f.left > 0 {
			break
		}
		if f.last {
			*f = Framer{}
			return n, true, nil
		}
		f.have = 0
	}
	return n, false, nil
}

func (f *Framer) beginFragment() error {
	mark := binary.BigEndian.Uint32(f.mark[:])
	f.left, f.last = int(mark&^lastFragment), mark&lastFragment != 0
	if f.size += markBytes + f.left; f.size > MaxRecord {
		return fmt.Errorf("a record has more than %d bytes", MaxRecord)
	}
	return nil
}

// Header is what Route needs of a record.
type Header struct {
	XID   uint32
	Reply bool
	Null  bool // a call of the procedure that does nothing, which clients begin with
	// Sessions: the call is one of NFS 4.1 or newer, which allows requests of a client to come over
	// several connections (RFC 8881, section 2.10.3.1).
	Sessions bool
}

// HeaderBytes is how many bytes of a record ParseHeader asks for at most.
const HeaderBytes = markBytes + 24

var errCut = errors.New("a record is too short for a message of RPC")

// ParseHeader reads the beginning of a record. It returns false while there are too few bytes.
func ParseHeader(record []byte) (Header, bool, error) {
	if len(record) < markBytes {
		return Header{}, false, nil
	}
	length := int(binary.BigEndian.Uint32(record) &^ lastFragment)
	if length < 8 {
		return Header{}, false, errCut
	}
	if len(record) < markBytes+min(length, HeaderBytes-markBytes) {
		return Header{}, false, nil
	}
	r := reader{record[markBytes:min(len(record), markBytes+length)], nil}
	h := Header{XID: r.uint32(), Reply: r.uint32() != 0}
	if !h.Reply {
		h.readCall(&r)
	}
	return h, true, nil
}

const nfsProgram, nfsVersion4 = 100003, 4

// readCall leaves a call that it cannot read without a finding: that is the server's to refuse.
func (h *Header) readCall(r *reader) {
	r.uint32() // the version of RPC
	program, version, procedure := r.uint32(), r.uint32(), r.uint32()
	h.Null = r.err == nil && procedure == 0
	for range 2 { // credential and verifier
		r.uint32()
		r.opaque()
	}
	r.opaque() // the tag of a COMPOUND
	minor := r.uint32()
	h.Sessions = r.err == nil && program == nfsProgram && version == nfsVersion4 && procedure == 1 && minor > 0
}

// reader reads XDR (RFC 4506). After an error, it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || n > len(r.rest) {
		r.err = errCut
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// opaque skips a field of variable length with its padding.
func (r *reader) opaque() {
	if n := r.uint32(); n > MaxRecord {
		r.err = errCut
	} else {
		r.bytes(int(n+3) &^ 3)
	}
}

// Null returns a call of the procedure of NFS 4 that does nothing, as a record.
func Null(xid uint32) []byte { return call(xid, nfsProgram, nfsVersion4, 0, nil) }

// call returns a call of version 2 of RPC, with an empty credential and verifier.
func call(xid, program, version, procedure uint32, arguments []byte) []byte {
	b := make([]byte, 0, markBytes+40+len(arguments))
	for _, v := range []uint32{uint32(40+len(arguments)) | lastFragment, xid, 0, 2, program, version, procedure, 0, 0, 0, 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, arguments...)
}

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
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(c.ID))), c.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, 8)
	return call(xid, bindProgram, bindVersion, bindProcedure, binary.BigEndian.AppendUint64(b, c.Incarnation))
}

// Answer is a server's answer to a greeting.
type Answer struct {
	// Partition is nil if the server has none for this connection: it does not know the call, asks
	// to try again, or would prefer another partition.
	Partition *Partition
	Retry     bool // another connection may get an answer of use
	Lanes     int  // the most that the server wants of a client
	// BytesPerSecond is the rate of a client from which it may have more than one connection.
	BytesPerSecond int64
}

// What a server answers. Only bindReady names the partition of the connection; after the others of these, Amazon's
// client opens another connection, and after retry later and error it rests.
const (
	bindRetry     = 0
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
	if kind := r.uint32(); kind != bindReady || r.err != nil {
		return Answer{Retry: r.err == nil && (kind == bindRetry || kind == bindPreferred)}, nil
	}
	var a Answer
	if b := r.bytes(partitionBytes); b != nil {
		a.Partition = (*Partition)(b)
	}
	a.Lanes, a.BytesPerSecond = int(int32(r.uint32())), int64(int32(r.uint32()))
	if r.err != nil {
		return Answer{}, errAnswer
	}
	return a, nil
}
