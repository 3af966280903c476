package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/httpserver"
)

const (
	// httpRetry is between two attempts to listen on the HTTP address.
	httpRetry = 500 * time.Millisecond
	// httpGrace is how long it takes to find out whether another agent has the address.
	httpGrace     = 2 * time.Second
	headerTimeout = 5 * time.Second
)

// serveSocket answers kubelet's probes, which a program in the container forwards to the socket. All
// agents of a node share its addresses, so an HTTP probe would be answered by the old pod while the
// new one starts; the socket is in the pod's own folder.
func (a *Agent) serveSocket(ctx context.Context) error {
	path := a.options.Dir.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	server := &http.Server{Handler: httpserver.Handler(a.checks(a.options.HTTP)), ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // kubelet repeats probes
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the socket for probes: %w", err)
	}
	return nil
}

// serveAddress serves the HTTP address as soon as it can listen there: during an upgrade the old
// agent has it.
func (a *Agent) serveAddress(ctx context.Context) {
	ticker := time.NewTicker(httpRetry)
	defer ticker.Stop()
	last := ""
	for ctx.Err() == nil {
		err := a.serveOnce(ctx)
		if err != nil && err.Error() != last && ctx.Err() == nil {
			a.options.Log.Warn("HTTP address cannot be served; retrying", "err", err)
			last = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (a *Agent) serveOnce(ctx context.Context) error {
	server, err := httpserver.Listen(ctx, a.checks(a.options.HTTP))
	a.otherAgent.Store(errors.Is(err, syscall.EADDRINUSE))
	if err != nil {
		return err
	}
	a.options.Log.Info("serving the HTTP address")
	return server.Serve(ctx)
}
