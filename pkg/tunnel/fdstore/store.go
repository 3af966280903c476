package fdstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
)

// Serve keeps sockets for the supervisors that connect to a path, one after the other, until the
// context ends.
func Serve(ctx context.Context, path string, log *slog.Logger) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serving the store of sockets: %w", err)
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("serving the store of sockets: %w", err)
	}
	s := &store{files: map[netip.AddrPort]*os.File{}, log: log}
	defer s.end()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })() // which ends Accept
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving the store of sockets: %w", err)
		}
		s.follow(ctx, conn)
	}
}

type store struct {
	log *slog.Logger

	mu    sync.Mutex
	conn  *net.UnixConn               // guarded by mu; of the supervisor that came last
	files map[netip.AddrPort]*os.File // guarded by mu
}

// follow serves a supervisor in the background. The one before has ended, though its connection may
// not have.
func (s *store) follow(ctx context.Context, conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = conn
	go func() {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		defer conn.Close()
		if err := s.serve(conn); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("supervisor's sockets cannot be kept", "err", err)
		}
	}()
}

// serve ends with an error, be it io.EOF.
func (s *store) serve(conn *net.UnixConn) error {
	for {
		m, file, err := receive(conn)
		if err != nil {
			return err
		}
		if err := s.handle(conn, m, file); err != nil {
			return err
		}
	}
}

func (s *store) handle(conn *net.UnixConn, m message, file *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.conn != conn:
		closeFile(file)
		return net.ErrClosed
	case m.Verb == verbTake && file == nil:
		return s.give(conn)
	case m.Verb == verbClear && file == nil:
		s.clear()
	case m.Verb == verbKeep && file != nil:
		closeFile(s.files[m.Address])
		s.files[m.Address] = file
	case m.Verb == verbDrop && file == nil:
		closeFile(s.files[m.Address])
		delete(s.files, m.Address)
	default:
		closeFile(file)
		return errMessage
	}
	return nil
}

func (s *store) give(conn *net.UnixConn) error {
	for address, file := range s.files {
		if err := send(conn, message{verbKept, address}, file); err != nil {
			return err
		}
	}
	return send(conn, message{Verb: verbEnd}, nil)
}

// clear closes all. The caller holds the mutex.
func (s *store) clear() {
	for _, file := range s.files {
		closeFile(file)
	}
	clear(s.files)
}

func (s *store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}
