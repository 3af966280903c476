// Package fdstore keeps the supervisor's listening sockets while the supervisor is away: the agent,
// in a container of its own, holds a copy of each. A port stays open then, connections wait, and
// the next supervisor of the pod takes the sockets back. systemd does the same for its services
// under this name.
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

// verb is what a message asks for, or tells.
type verb string

const (
	verbTake  verb = "take"  // asks for all sockets that are kept
	verbKept  verb = "kept"  // answers with one of them
	verbEnd   verb = "end"   // says that those were all
	verbClear verb = "clear" // says that none of those is needed any more
	verbKeep  verb = "keep"  // brings a socket
	verbDrop  verb = "drop"  // says that one is not needed any more
)

// message is one packet. A socket comes with it as ancillary data.
type message struct {
	Verb    verb           `json:"verb"`
	Address netip.AddrPort `json:"address,omitzero"` // where the socket listens
}

const mostBytes = 256 // of a message

var errMessage = errors.New("a message that does not belong here")

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
	// Within Control the descriptor stays what it is, whoever closes the file.
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		_, _, sendErr = conn.WriteMsgUnix(text, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sendErr)
}

// receive gives the socket that came with a message, nil if none did.
func receive(conn *net.UnixConn) (message, *os.File, error) {
	text, rights := make([]byte, mostBytes), make([]byte, unix.CmsgSpace(4))
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
	// Reading and writing are for whoever takes it. A file that blocks is left alone by the
	// runtime's poller.
	if err := unix.SetNonblock(fds[0], false); err != nil {
		return nil, errors.Join(errMessage, err, unix.Close(fds[0]))
	}
	file := os.NewFile(uintptr(fds[0]), "socket")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(errMessage, err, file.Close())
	}
	return file, nil
}

// closeFile: nothing was written to a listening socket that could be lost.
func closeFile(file *os.File) {
	if file != nil {
		_ = file.Close()
	}
}
