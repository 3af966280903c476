// Package gateway forwards ports of this machine's 127.0.0.1 into a lab. Its listeners are opened outside
// the lab's network namespace and its process runs inside, so that the two share no network.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Command is the hidden subcommand that runs the gateway.
const Command = "internal-gateway"

// firstListener is the descriptor of the first target's listener.
const firstListener = 3

// Listen opens a port of 127.0.0.1 for the gateway, whose process inherits the file. With port 0 the
// system chooses.
func Listen(port int) (*os.File, int, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, 0, fmt.Errorf("opening port %d of 127.0.0.1: %w", port, err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, 0, fmt.Errorf("opening port %d of 127.0.0.1: %w", port, err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, 0, fmt.Errorf("opening port %d of 127.0.0.1: unexpected address %v", port, l.Addr())
	}
	return f, addr.Port, nil
}

// Run forwards connections of the inherited listeners to the targets, in
// their order, until the context ends.
func Run(ctx context.Context, targets []string, log *slog.Logger) error {
	var wg sync.WaitGroup
	for i, target := range targets {
		l, err := net.FileListener(os.NewFile(uintptr(firstListener+i), target))
		if err != nil {
			return fmt.Errorf("taking the listener for %s: %w", target, err)
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		log.Info("forwarding", "from", l.Addr().String(), "to", target)
		wg.Go(func() { serve(ctx, l, target, log) })
	}
	wg.Wait()
	return nil
}

func serve(ctx context.Context, l net.Listener, target string, log *slog.Logger) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Warn("accepting a connection failed", "to", target, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond): // too many open files: wait until some are closed
			}
			continue
		}
		go forward(ctx, client, target, log)
	}
}

func forward(ctx context.Context, client net.Conn, target string, log *slog.Logger) {
	defer client.Close()
	dialer := net.Dialer{Timeout: 10 * time.Second}
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		log.Warn("connecting failed", "to", target, "err", err)
		return
	}
	defer server.Close()
	var wg sync.WaitGroup
	wg.Go(func() { pipe(server, client) })
	wg.Go(func() { pipe(client, server) })
	wg.Wait()
}

// pipe copies a stream and its end, so that either side may finish first.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
