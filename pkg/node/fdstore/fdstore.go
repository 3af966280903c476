// Package fdstore keeps the supervisor's listening sockets open while the supervisor restarts. The
// agent, in another container of the pod, holds a copy of each socket, so that connections wait in
// the backlog. The next supervisor of the pod takes the sockets back. systemd has the same for its
// services under this name.
package fdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// verb is the type of a message.
type verb string

const (
	verbSocket verb = "socket" // carries one socket
	verbEnd    verb = "end"    // ends the sockets
	verbTake   verb = "take"   // requests all stored sockets
)

// message is one packet. It carries a socket as ancillary data.
type message struct {
	Verb    verb           `json:"verb"`
	Address netip.AddrPort `json:"address,omitzero"` // where the socket listens
}

const (
	maxMessageBytes = 256
	// transferTimeout bounds the transfer of all sockets: one that hangs must not keep ports closed.
	transferTimeout = time.Second
)

var errMessage = errors.New("unexpected message")

// Sockets are listening sockets by their addresses.
type Sockets map[netip.AddrPort]*os.File

// Close closes all sockets. It ignores errors: no data can be lost on a listening socket.
func (s Sockets) Close() {
	for _, file := range s {
		_ = file.Close()
	}
}

// sendAll sends sockets to the other end. Those that were closed meanwhile are left out.
func (s Sockets) sendAll(conn *net.UnixConn) error {
	for address, file := range s {
		if err := send(conn, message{verbSocket, address}, file); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return send(conn, message{Verb: verbEnd}, nil)
}

// receiveAll receives messages until one that carries no socket, whose verb it returns. After an error,
// it returns the sockets that had come before.
func receiveAll(conn *net.UnixConn) (Sockets, verb, error) {
	all := Sockets{}
	if err := conn.SetDeadline(time.Now().Add(transferTimeout)); err != nil {
		return all, "", err
	}
	for {
		m, file, err := receive(conn)
		switch {
		case err != nil:
			return all, "", err
		case (m.Verb == verbSocket) != (file != nil):
			_ = file.Close()
			return all, "", errMessage
		case file == nil:
			return all, m.Verb, nil
		}
		_ = all[m.Address].Close() // of nil, if the address is new
		all[m.Address] = file
	}
}

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
		_ = file.Close()
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

// Serve runs a store at the path of a unix socket until the context ends. Supervisors connect to it
// one after the other.
func Serve(ctx context.Context, path string, log *slog.Logger) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serving the store of sockets: %w", err)
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("serving the store of sockets: %w", err)
	}
	var s store
	defer func() { s.replace(nil, nil) }()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })() // ends Accept
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving the store of sockets: %w", err)
		}
		if err := s.serve(conn); err != nil && !errors.Is(err, io.EOF) {
			log.Warn("storing the supervisor's sockets failed", "err", err)
		}
	}
}

type store struct {
	sockets Sockets
	conn    *net.UnixConn // of the supervisor that they are from; nil before the first
}

// serve does what a supervisor requests: it sends the stored sockets, or replaces them once all of the new
// ones have come. A supervisor that dies before keeps those of the store.
func (s *store) serve(conn *net.UnixConn) error {
	received, last, err := receiveAll(conn)
	if err == nil && last == verbEnd {
		s.replace(conn, received)
		return nil
	}
	received.Close()
	if err == nil && last == verbTake {
		err = s.sockets.sendAll(conn)
	}
	return errors.Join(err, conn.Close())
}

// replace keeps the connection open, by whose end the supervisor knows that the store has ended.
func (s *store) replace(conn *net.UnixConn, sockets Sockets) {
	s.sockets.Close()
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.sockets = conn, sockets
}

const retryInterval = time.Second // the time between two attempts to connect to the store

func dial(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}

// notServed reports whether an error says that the agent does not run.
func notServed(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Take returns the sockets in the store at a path. It returns none if no store is served there.
func Take(path string, log *slog.Logger) Sockets {
	taken, err := take(path)
	if err != nil && !notServed(err) {
		log.Warn("taking the sockets of an earlier supervisor failed", "err", err)
	}
	if len(taken) > 0 {
		log.Info("sockets of an earlier supervisor taken", "sockets", len(taken))
	}
	return taken
}

func take(path string) (Sockets, error) {
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := send(conn, message{Verb: verbTake}, nil); err != nil {
		return nil, err
	}
	taken, last, err := receiveAll(conn)
	if err == nil && last != verbEnd {
		err = errMessage
	}
	return taken, err
}

// Client gives copies of a supervisor's sockets to a store.
type Client struct {
	path    string
	log     *slog.Logger
	desired chan Sockets // holds the latest only
}

// NewClient starts a client that runs until the context ends.
func NewClient(ctx context.Context, path string, log *slog.Logger) *Client {
	c := &Client{path: path, log: log, desired: make(chan Sockets, 1)}
	go c.run(ctx)
	return c
}

// Store replaces the set of stored sockets. It does not block. The caller must not change the map
// afterwards, and may close the files.
func (c *Client) Store(sockets Sockets) {
	select {
	case <-c.desired:
	default:
	}
	c.desired <- sockets
}

// run sends the sockets when they have changed, and again when the agent has restarted.
func (c *Client) run(ctx context.Context) {
	var desired Sockets
	select {
	case desired = <-c.desired: // connecting earlier would clear the store
	case <-ctx.Done():
	}
	failed := false
	for ctx.Err() == nil {
		conn, err := c.send(desired)
		before := failed
		if failed = err != nil && !notServed(err); failed && !before {
			c.log.Warn("sending sockets to the agent failed; retrying", "err", err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err == nil {
				_, _ = io.Copy(io.Discard, conn) // the store sends nothing; this waits for its end
			}
		}()
		select {
		case desired = <-c.desired:
		case <-ended:
			loop.Pause(ctx, retryInterval)
		case <-ctx.Done():
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// send returns the connection, by whose end the client knows that the store has lost the sockets.
func (c *Client) send(sockets Sockets) (*net.UnixConn, error) {
	conn, err := dial(c.path)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(transferTimeout))
	if err = errors.Join(err, sockets.sendAll(conn), conn.SetDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
