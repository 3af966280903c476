package ganesha

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const pingTimeout = 5 * time.Second

func pingAddress(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("dialling: %w", err)
	}
	defer conn.Close()
	return Ping(ctx, conn)
}

// The numbers of ONC RPC (RFC 5531) and NFS.
const (
	lastFragment = 1 << 31
	rpcVersion   = 2
	nfsProgram   = 100003
	nfsVersion   = 4
	reply        = 1
	// denialLength counts the 32-bit fields of a reply that denies a call: xid, type, 1, reason, status.
	// A reply that accepts it has xid, type, 0, the verifier (2 fields), state.
	denialLength = 5
)

// Ping calls the NFS server's NULL procedure and waits for its answer.
func Ping(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("setting a deadline: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	xid := binary.BigEndian.Uint32(random[:])
	// xid, call, RPC version, program, version, procedure NULL, no credentials, no verifier.
	call := fields(xid, 0, rpcVersion, nfsProgram, nfsVersion, 0, 0, 0, 0, 0)
	if _, err := conn.Write(append(fields(lastFragment|uint32(len(call))), call...)); err != nil {
		return fmt.Errorf("calling NULL: %w", err)
	}
	return readAnswer(conn, xid)
}

// readAnswer checks that the server accepted the call.
func readAnswer(r io.Reader, xid uint32) error {
	answer := make([]byte, 4+4*denialLength)
	if _, err := io.ReadFull(r, answer); err != nil {
		return fmt.Errorf("reading the answer to NULL: %w", err)
	}
	field := func(i int) uint32 { return binary.BigEndian.Uint32(answer[4+4*i:]) }
	if field(0) != xid || field(1) != reply {
		return errors.New("answer to NULL: not a reply to this call")
	}
	if field(2) != 0 {
		return fmt.Errorf("answer to NULL: denied, reason %d, status %d", field(3), field(4))
	}
	var state [4]byte
	if _, err := io.ReadFull(r, state[:]); err != nil {
		return fmt.Errorf("reading the answer to NULL: %w", err)
	}
	if state := binary.BigEndian.Uint32(state[:]); state != 0 {
		return fmt.Errorf("answer to NULL: state %d", state)
	}
	return nil
}

func fields(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}
