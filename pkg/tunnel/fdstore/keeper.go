package fdstore

import (
	"context"
	"errors"
	"fmt"
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
	// takeLimit bounds the wait for what is kept: an agent that hangs must not keep tunnels shut.
	takeLimit = time.Second
	// retryInterval is between two tries to reach the agent.
	retryInterval = time.Second
)

// Take gives the sockets that are kept at a path, by the address where they listen. There are none
// when nobody answers.
func Take(path string, log *slog.Logger) map[netip.AddrPort]*os.File {
	files, err := take(path)
	if err != nil && !isAway(err) {
		log.Warn("sockets of an earlier supervisor cannot be taken", "err", err)
	}
	if len(files) > 0 {
		log.Info("sockets of an earlier supervisor are taken", "sockets", len(files))
	}
	return files
}

// isAway: the agent has not started, or has ended.
func isAway(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func take(path string) (map[netip.AddrPort]*os.File, error) {
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(takeLimit)); err != nil {
		return nil, err
	}
	files := map[netip.AddrPort]*os.File{}
	if err := send(conn, message{Verb: verbTake}, nil); err != nil {
		return nil, err
	}
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
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("reaching the agent: %w", err)
	}
	return conn, nil
}

// Keeper has a store keep what a supervisor has open.
type Keeper struct {
	path   string
	log    *slog.Logger
	wanted chan map[netip.AddrPort]*os.File // holds the latest
}

// NewKeeper works until the context ends.
func NewKeeper(ctx context.Context, path string, log *slog.Logger) *Keeper {
	k := &Keeper{path: path, log: log, wanted: make(chan map[netip.AddrPort]*os.File, 1)}
	go k.run(ctx)
	return k
}

// Keep has these sockets kept from now on, and no others. It does not wait. The map must not be
// changed any more; files in it may be closed.
func (k *Keeper) Keep(files map[netip.AddrPort]*os.File) {
	select {
	case <-k.wanted:
	default:
	}
	k.wanted <- files
}

// run reaches for the agent again and again: it comes and goes by itself.
func (k *Keeper) run(ctx context.Context) {
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	var wanted map[netip.AddrPort]*os.File
	select {
	case wanted = <-k.wanted: // nothing that is kept is given up before
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		if conn, err := dial(k.path); err == nil {
			wanted = k.follow(ctx, conn, wanted)
		}
		select {
		case wanted = <-k.wanted:
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// follow tells one store until that ends, and returns what was wanted last.
func (k *Keeper) follow(ctx context.Context, conn *net.UnixConn, wanted map[netip.AddrPort]*os.File) map[netip.AddrPort]*os.File {
	defer conn.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // it says nothing; its end is what is waited for
	}()
	var sent map[netip.AddrPort]*os.File
	err := send(conn, message{Verb: verbClear}, nil)
	for {
		if err = errors.Join(err, update(conn, sent, wanted)); err != nil {
			k.log.Warn("sockets cannot be given to the agent", "err", err)
			return wanted
		}
		sent = maps.Clone(wanted)
		select {
		case wanted = <-k.wanted:
		case <-gone:
			return wanted
		case <-ctx.Done():
			return wanted
		}
	}
}

func update(conn *net.UnixConn, sent, wanted map[netip.AddrPort]*os.File) error {
	for address := range sent {
		if wanted[address] == nil {
			if err := send(conn, message{verbDrop, address}, nil); err != nil {
				return err
			}
		}
	}
	for address, file := range wanted {
		if sent[address] == file {
			continue
		}
		if err := send(conn, message{verbKeep, address}, file); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}
