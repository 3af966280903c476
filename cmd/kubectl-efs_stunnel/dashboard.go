package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/dashboard"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

const loopback = "127.0.0.1"

func (p *plugin) dashboard() *cobra.Command {
	var port int
	command := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the state of the installation in a browser",
		Long: "Serve a page with the state of the installation on 127.0.0.1, until Ctrl-C. It is read-only and refreshes itself.\n" +
			"Its address is printed, and has a part that cannot be guessed: whoever has it sees what you may read.",
		Example: "  kubectl efs-stunnel dashboard\n  kubectl efs-stunnel dashboard --port 8080",
		RunE: func(command *cobra.Command, _ []string) error {
			if port < 0 || port > wellknown.MaxPort {
				return fmt.Errorf("--port %d: want a port up to %d, or 0 for any", port, wellknown.MaxPort)
			}
			return p.runDashboard(command.Context(), port)
		},
	}
	command.Flags().IntVar(&port, "port", 0, "local `port` of the page; 0 is any that is free")
	return command
}

func (p *plugin) runDashboard(ctx context.Context, port int) error {
	c, err := p.connect(p.flags)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	_, chosen, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	handler := dashboard.New(loopback, chosen, func(ctx context.Context) (*inspect.Snapshot, error) {
		return p.gatherFrom(ctx, c, false)
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(p.streams.Out, "%s\nCtrl-C ends it.\n", handler.URL())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
