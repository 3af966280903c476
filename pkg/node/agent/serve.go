package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

const (
	httpRetry = 500 * time.Millisecond // between two attempts to listen on the HTTP address
	httpGrace = 2 * time.Second        // how long it takes to find out whether another agent has the address
)

// serveSocket answers kubelet's probes, which a program in the container forwards to the socket. All
// agents of a node share its addresses, so an HTTP probe would be answered by the old pod while the
// new one starts; the socket is in the pod's own folder.
func (a *Agent) serveSocket(ctx context.Context) error {
	path := a.options.Dir.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	o := a.checks(a.options.HTTP)
	o.Network, o.Address = "unix", path
	server, err := httpserver.Listen(ctx, o)
	if err != nil {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	return server.Serve(ctx)
}

// serveAddress serves the HTTP address as soon as it can listen there: during an upgrade the old
// agent has it.
func (a *Agent) serveAddress(ctx context.Context) {
	var last lastError
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		server, err := httpserver.Listen(ctx, a.checks(a.options.HTTP))
		a.otherAgent.Store(errors.Is(err, syscall.EADDRINUSE))
		if err == nil {
			a.options.Log.Info("serving the HTTP address")
			err = server.Serve(ctx)
		}
		if last.isNew(err) && ctx.Err() == nil {
			a.options.Log.Warn("HTTP address cannot be served; retrying", "err", err)
		}
	}, httpRetry)
}
