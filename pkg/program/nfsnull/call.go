// Package nfsnull does NULL calls, which an NFSv4 server answers without authentication and which access no file.
package nfsnull

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The parts of ONC RPC version 2 (RFC 5531) and NFSv4 (RFC 8881) that a NULL call needs.
const (
	lastFragment = 1 << 31

	messageCall  = 0
	messageReply = 1
	rpcVersion   = 2
	nfsProgram   = 100003
	nfsVersion   = 4
	nullCall     = 0

	replyAccepted  = 0
	replyDenied    = 1
	rejectAuth     = 1
	acceptSuccess  = 0
	maxVerifier    = 400 // bytes
	maxReply       = 1024
	wordSize       = 4 // bytes; XDR aligns all items to it
	replyHeadWords = 5 // xid, message type, reply status, verifier's flavor and length
)

// ErrProtocol is the error for a reply that no NFSv4 server sends.
var ErrProtocol = errors.New("the reply is not an NFSv4 server's")

// ErrDenied is the error for a call that the server denied.
var ErrDenied = errors.New("access denied by the server")

// Call does a NULL call over a connection, and waits for the reply until the context ends. After an
// error the connection cannot be used any more.
func Call(ctx context.Context, conn net.Conn, xid uint32) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // interrupts reads and writes
	defer stop()
	if _, err := conn.Write(encodeCall(xid)); err != nil {
		return WithContextError(ctx, fmt.Errorf("sending a NULL call: %w", withoutSource(err)))
	}
	reply, err := readRecord(conn)
	if err != nil {
		return WithContextError(ctx, fmt.Errorf("waiting for the reply to a NULL call: %w", withoutSource(err)))
	}
	return checkReply(reply, xid)
}

// withoutSource removes the local port, which differs between connections, from an error: events about
// the same failure are counted as one only if their messages are equal.
func withoutSource(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	stripped := *op
	stripped.Source = nil
	return &stripped
}

// WithContextError adds the error of the context, which is the cause of the other one if the context
// has ended.
func WithContextError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

func encodeCall(xid uint32) []byte {
	message, _ := binary.Append(nil, binary.BigEndian, []uint32{ // of words, there is no error
		lastFragment | 10*wordSize, xid, messageCall, rpcVersion, nfsProgram, nfsVersion, nullCall,
		0, 0, // credentials: AUTH_NONE, length 0
		0, 0, // verifier: the same
	})
	return message
}

// readRecord reads the fragments of one record.
func readRecord(r io.Reader) ([]byte, error) {
	var record []byte
	for {
		var head uint32
		if err := binary.Read(r, binary.BigEndian, &head); err != nil {
			return nil, err
		}
		length := int(head &^ lastFragment)
		last := head&lastFragment != 0
		// Without this check, endless empty fragments would be read for ever.
		if length > maxReply-len(record) || length == 0 && !last {
			return nil, fmt.Errorf("%w: a fragment of %d bytes", ErrProtocol, length)
		}
		fragment := make([]byte, length)
		if _, err := io.ReadFull(r, fragment); err != nil {
			return nil, err
		}
		record = append(record, fragment...)
		if last {
			return record, nil
		}
	}
}

func checkReply(reply []byte, xid uint32) error {
	if len(reply) < replyHeadWords*wordSize {
		return fmt.Errorf("%w: %d bytes", ErrProtocol, len(reply))
	}
	at := func(i int) uint32 { return binary.BigEndian.Uint32(reply[i*wordSize:]) }
	if at(0) != xid || at(1) != messageReply {
		return fmt.Errorf("%w: it is for another call", ErrProtocol)
	}
	if at(2) == replyDenied && at(3) == rejectAuth {
		return fmt.Errorf("%w: the file system's policy, or an access point that does not exist", ErrDenied)
	}
	if at(2) != replyAccepted {
		return fmt.Errorf("%w: the call was not accepted", ErrProtocol)
	}
	verifier := at(replyHeadWords - 1)
	if verifier > maxVerifier || verifier%wordSize != 0 || len(reply) != (replyHeadWords+1)*wordSize+int(verifier) {
		return fmt.Errorf("%w: %d bytes with a verifier of %d", ErrProtocol, len(reply), verifier)
	}
	if status := binary.BigEndian.Uint32(reply[len(reply)-wordSize:]); status != acceptSuccess {
		return fmt.Errorf("%w: NFSv4 is not served (accept_stat %d)", ErrProtocol, status)
	}
	return nil
}
