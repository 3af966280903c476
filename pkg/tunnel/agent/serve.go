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
	// httpRetry is between two tries to take the HTTP address.
	httpRetry = 500 * time.Millisecond
	// httpGrace is how long it takes to know whether another agent has the address.
	httpGrace     = 2 * time.Second
	headerTimeout = 5 * time.Second
)

// serveSocket answers kubelet's probes, which come through a program in the container. All
// agents of a node share its addresses, so that a probe over HTTP would be answered by the old
// one while the new one starts; the socket is in the pod's own folder.
func (a *Agent) serveSocket(ctx context.Context) error {
	path := a.options.Dir.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking the probes' socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("taking the probes' socket: %w", err)
	}
	server := &http.Server{Handler: httpserver.Handler(a.checks(a.options.HTTP)), ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // probes are short, and asked again
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the probes' socket: %w", err)
	}
	return nil
}

// serveAddress serves the HTTP address as soon as it can be had. Until then another agent has
// it: the old one of an upgrade.
func (a *Agent) serveAddress(ctx context.Context) {
	ticker := time.NewTicker(httpRetry)
	defer ticker.Stop()
	last := ""
	for ctx.Err() == nil {
		err := a.serveOnce(ctx)
		if err != nil && err.Error() != last && ctx.Err() == nil {
			a.options.Log.Warn("HTTP address cannot be served for the moment", "err", err)
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
	a.sibling.Store(errors.Is(err, syscall.EADDRINUSE))
	if err != nil {
		return err
	}
	a.options.Log.Info("HTTP address is served")
	return server.Serve(ctx)
}
