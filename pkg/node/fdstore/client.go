package fdstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	takeTimeout   = time.Second // bounds Take: an agent that hangs must not keep ports closed
	retryInterval = time.Second // the time between two attempts to connect to the store
)

// Take returns the sockets in the store at a path, by the address where they listen. It returns none
// if no store is served there.
func Take(path string, log *slog.Logger) map[netip.AddrPort]*os.File {
	files, err := take(path)
	isServed := !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) // the agent runs
	if err != nil && isServed {
		log.Warn("taking the sockets of an earlier supervisor failed", "err", err)
	}
	if len(files) > 0 {
		log.Info("sockets of an earlier supervisor taken", "sockets", len(files))
	}
	return files
}

func take(path string) (map[netip.AddrPort]*os.File, error) {
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = conn.SetDeadline(time.Now().Add(takeTimeout))
	if err = errors.Join(err, send(conn, message{Verb: verbTake}, nil)); err != nil {
		return nil, err
	}
	files := map[netip.AddrPort]*os.File{}
	for {
		m, file, err := receive(conn)
		switch {
		case err != nil:
			return files, err
		case m.Verb == verbEnd:
			return files, nil
		case m.Verb != verbKept || file == nil:
			closeFile(file)
			return files, errMessage
		}
		closeFile(files[m.Address])
		files[m.Address] = file
	}
}

func dial(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}

// Client gives copies of a supervisor's sockets to a store.
type Client struct {
	path    string
	log     *slog.Logger
	desired chan map[netip.AddrPort]*os.File // holds the latest map only
}

// NewClient starts a client that runs until the context ends.
func NewClient(ctx context.Context, path string, log *slog.Logger) *Client {
	c := &Client{path: path, log: log, desired: make(chan map[netip.AddrPort]*os.File, 1)}
	go c.run(ctx)
	return c
}

// Store replaces the set of stored sockets. It does not block. The caller must not change the map
// afterwards, and may close the files.
func (c *Client) Store(files map[netip.AddrPort]*os.File) {
	select {
	case <-c.desired:
	default:
	}
	c.desired <- files
}

// run reconnects whenever the agent has restarted.
func (c *Client) run(ctx context.Context) {
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	var desired map[netip.AddrPort]*os.File
	select {
	case desired = <-c.desired: // connecting earlier would clear the store
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		if conn, err := dial(c.path); err == nil {
			desired = c.sync(ctx, conn, desired)
		}
		select {
		case desired = <-c.desired:
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// sync sends changes to the store until the connection ends, and returns the last desired sockets.
func (c *Client) sync(ctx context.Context, conn *net.UnixConn, desired map[netip.AddrPort]*os.File) map[netip.AddrPort]*os.File {
	defer conn.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // the store sends nothing; this waits for its end
	}()
	var sent map[netip.AddrPort]*os.File
	err := send(conn, message{Verb: verbClear}, nil)
	for {
		if err = errors.Join(err, sendChanges(conn, sent, desired)); err != nil {
			c.log.Warn("sending sockets to the agent failed", "err", err)
			return desired
		}
		sent = maps.Clone(desired)
		select {
		case desired = <-c.desired:
		case <-closed:
			return desired
		case <-ctx.Done():
			return desired
		}
	}
}

func sendChanges(conn *net.UnixConn, sent, desired map[netip.AddrPort]*os.File) error {
	for address := range sent {
		if desired[address] == nil {
			if err := send(conn, message{verbDrop, address}, nil); err != nil {
				return err
			}
		}
	}
	for address, file := range desired {
		if sent[address] != file {
			if err := send(conn, message{verbKeep, address}, file); err != nil && !errors.Is(err, os.ErrClosed) {
				return err
			}
		}
	}
	return nil
}
