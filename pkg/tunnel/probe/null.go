// Package probe finds out whether NFS servers answer, through tunnels and directly. It asks with
// NULL calls, which every NFSv4 server answers to everybody and which touch no file.
package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ONC RPC version 2 (RFC 5531), as far as a NULL call of NFSv4 (RFC 8881) goes.
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
	word           = 4 // bytes, which everything is a multiple of
	replyHeadWords = 5 // xid, message type, reply status, verifier's flavour and length
)

// ErrProtocol is an answer that no NFSv4 server gives.
var ErrProtocol = errors.New("the answer is not one of an NFSv4 server")

// ErrDenied is the answer of a server that does not let this client in.
var ErrDenied = errors.New("access denied by the server")

// Null does one NULL call over a connection and waits for its answer until the context ends. A
// connection on which it failed is of no use any more.
func Null(ctx context.Context, conn net.Conn, xid uint32) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends what waits
	defer stop()
	if _, err := conn.Write(call(xid)); err != nil {
		return because(ctx, fmt.Errorf("sending a NULL call: %w", withoutSource(err)))
	}
	reply, err := readRecord(conn)
	if err != nil {
		return because(ctx, fmt.Errorf("waiting for the answer to a NULL call: %w", withoutSource(err)))
	}
	return checkReply(reply, xid)
}

// withoutSource leaves out this end's port, which is another one in each connection: the same
// trouble is to read the same each time, and to add to the event that there is.
func withoutSource(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	told := *op
	told.Source = nil
	return &told
}

// because prefers the reason for which a deadline was moved to what came of it.
func because(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

func call(xid uint32) []byte {
	words := []uint32{
		xid, messageCall, rpcVersion, nfsProgram, nfsVersion, nullCall,
		0, 0, // credentials: none, of no length
		0, 0, // verifier: the same
	}
	message := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(len(words)*word))
	for _, w := range words {
		message = binary.BigEndian.AppendUint32(message, w)
	}
	return message
}

// readRecord puts the fragments of one record together.
func readRecord(r io.Reader) ([]byte, error) {
	var record []byte
	for {
		var mark [word]byte
		if _, err := io.ReadFull(r, mark[:]); err != nil {
			return nil, err
		}
		head := binary.BigEndian.Uint32(mark[:])
		length := int(head &^ lastFragment)
		last := head&lastFragment != 0
		// Empty fragments without end would keep it here for ever.
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
	if len(reply) < replyHeadWords*word {
		return fmt.Errorf("%w: %d bytes", ErrProtocol, len(reply))
	}
	at := func(i int) uint32 { return binary.BigEndian.Uint32(reply[i*word:]) }
	if at(0) != xid || at(1) != messageReply {
		return fmt.Errorf("%w: an answer to another call", ErrProtocol)
	}
	if at(2) == replyDenied && at(3) == rejectAuth {
		return fmt.Errorf("%w: the file system's policy, or an access point that is not there", ErrDenied)
	}
	if at(2) != replyAccepted {
		return fmt.Errorf("%w: the call was not accepted", ErrProtocol)
	}
	verifier := at(replyHeadWords - 1)
	if verifier > maxVerifier || verifier%word != 0 || len(reply) != (replyHeadWords+1)*word+int(verifier) {
		return fmt.Errorf("%w: %d bytes with a verifier of %d", ErrProtocol, len(reply), verifier)
	}
	if status := binary.BigEndian.Uint32(reply[len(reply)-word:]); status != acceptSuccess {
		return fmt.Errorf("%w: NFSv4 is not served (accept_stat %d)", ErrProtocol, status)
	}
	return nil
}
