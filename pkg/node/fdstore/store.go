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
	s := &store{files: map[netip.AddrPort]*os.File{}, log: log}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeAll()
	}()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })() // ends Accept
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving the store of sockets: %w", err)
		}
		s.serveConn(ctx, conn)
	}
}

type store struct {
	log *slog.Logger

	mu    sync.Mutex
	conn  *net.UnixConn               // guarded by mu; of the last supervisor
	files map[netip.AddrPort]*os.File // guarded by mu
}

// serveConn serves a supervisor in another goroutine. It closes the connection of the supervisor
// before, which has exited.
func (s *store) serveConn(ctx context.Context, conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = conn
	go func() {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		defer conn.Close()
		if err := s.handleMessages(conn); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("storing the supervisor's sockets failed", "err", err)
		}
	}()
}

// handleMessages always returns an error, io.EOF at the end of the connection.
func (s *store) handleMessages(conn *net.UnixConn) error {
	for {
		m, file, err := receive(conn)
		if err == nil {
			err = s.handle(conn, m, file)
		}
		if err != nil {
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
		return s.sendAll(conn)
	case m.Verb == verbClear && file == nil:
		s.closeAll()
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

func (s *store) sendAll(conn *net.UnixConn) error {
	for address, file := range s.files {
		if err := send(conn, message{verbKept, address}, file); err != nil {
			return err
		}
	}
	return send(conn, message{Verb: verbEnd}, nil)
}

// closeAll drops all sockets. The caller holds mu.
func (s *store) closeAll() {
	for _, file := range s.files {
		closeFile(file)
	}
	clear(s.files)
}
