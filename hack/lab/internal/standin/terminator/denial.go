package terminator

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// denialTimeout is the time in which a refused client may send its first call, and then close the connection.
const denialTimeout = 30 * time.Second

// The numbers of ONC RPC (RFC 5531).
const (
	lastFragment = 1 << 31
	maxCall      = 1 << 20 // bytes
	rpcCall      = 0
	rpcReply     = 1
	msgDenied    = 1
	authError    = 1
	authTooWeak  = 5
)

// deny answers the client's first call with "access denied" and closes the connection. EFS refuses
// in the same way, not in the TLS handshake: mount.nfs reports "access denied by server" at once, and
// the kernel logs "check lease failed ... error 13" when it reconnects. A client whose connection was
// only closed would retry for minutes.
func (c *connection) deny(secure *tls.Conn) {
	_ = secure.SetDeadline(time.Now().Add(denialTimeout))
	xid, err := readCall(secure)
	c.target.gate.pass(c.done)
	if err != nil {
		return
	}
	if _, err := secure.Write(denial(xid)); err != nil {
		return
	}
	if err := secure.CloseWrite(); err != nil {
		return
	}
	// Closing with unread bytes would reset the connection, and the answer would be lost.
	_, _ = io.Copy(io.Discard, secure)
}

// readCall reads one RPC call and returns its transaction id.
func readCall(r io.Reader) (xid uint32, err error) {
	var head [12]byte // fragment header, transaction id, message type
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, fmt.Errorf("reading an RPC call: %w", err)
	}
	length := binary.BigEndian.Uint32(head[:]) &^ lastFragment
	if length < 8 || length > maxCall || binary.BigEndian.Uint32(head[8:]) != rpcCall {
		return 0, errors.New("reading an RPC call: not an RPC call")
	}
	if _, err := io.CopyN(io.Discard, r, int64(length)-8); err != nil {
		return 0, fmt.Errorf("reading an RPC call: %w", err)
	}
	return binary.BigEndian.Uint32(head[4:]), nil
}

func denial(xid uint32) []byte {
	reply := []uint32{xid, rpcReply, msgDenied, authError, authTooWeak}
	b := binary.BigEndian.AppendUint32(nil, uint32(lastFragment|4*len(reply)))
	for _, word := range reply {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return b
}
