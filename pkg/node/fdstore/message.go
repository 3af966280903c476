// Package fdstore keeps the supervisor's listening sockets open while the supervisor restarts. The
// agent, in another container of the pod, holds a copy of each socket, so that connections wait in
// the backlog. The next supervisor of the pod takes the sockets back. systemd has the same for its
// services under this name.
package fdstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// verb is the type of a message.
type verb string

const (
	verbTake  verb = "take"  // requests all stored sockets
	verbKept  verb = "kept"  // returns one of them
	verbEnd   verb = "end"   // ends the answer to take
	verbClear verb = "clear" // removes all stored sockets
	verbKeep  verb = "keep"  // stores a socket
	verbDrop  verb = "drop"  // removes a socket
)

// message is one packet. It carries a socket as ancillary data.
type message struct {
	Verb    verb           `json:"verb"`
	Address netip.AddrPort `json:"address,omitzero"` // where the socket listens
}

const maxMessageBytes = 256

var errMessage = errors.New("unexpected message")

func send(conn *net.UnixConn, m message, file *os.File) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if file == nil {
		_, err := conn.Write(text)
		return err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	// Control keeps the descriptor valid while another goroutine closes the file.
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		_, _, sendErr = conn.WriteMsgUnix(text, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sendErr)
}

// receive returns a message and its socket, nil if it carries none.
func receive(conn *net.UnixConn) (message, *os.File, error) {
	text, rights := make([]byte, maxMessageBytes), make([]byte, unix.CmsgSpace(4))
	n, rightsLength, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return message{}, nil, err
	}
	file, err := fileOf(rights[:rightsLength])
	if err != nil {
		return message{}, nil, err
	}
	var m message
	if err := json.Unmarshal(text[:n], &m); err != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeFile(file)
		return message{}, nil, errors.Join(errMessage, err)
	}
	return m, file, nil
}

func fileOf(rights []byte) (*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errMessage, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errMessage, err)
	}
	unix.CloseOnExec(fds[0])
	// os.NewFile would register a non-blocking socket with the runtime's poller, although only stunnel
	// accepts from it.
	err = unix.SetNonblock(fds[0], false)
	file := os.NewFile(uintptr(fds[0]), "socket")
	if err = errors.Join(err, unix.SetNonblock(fds[0], true)); err != nil {
		return nil, errors.Join(errMessage, err, file.Close())
	}
	return file, nil
}

// closeFile ignores errors, also of nil: no data can be lost on a listening socket.
func closeFile(file *os.File) { _ = file.Close() }
