package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"gnuthought.com/efs-stunnel/pkg/settings"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	// probeTimeout is below the second that kubelet gives probes by default.
	probeTimeout = 900 * time.Millisecond
	// maxReport bounds what is handed on to kubelet.
	maxReport = 4 << 10
)

// probeRun asks the agent of this container how it is, for kubelet. All agents of a node share
// its addresses: while one follows another, a probe over HTTP would be answered by the old one.
func probeRun(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	what := ""
	if len(args) > 0 {
		what, args = args[0], args[1:]
	}
	path, ok := map[string]string{"healthy": "/healthz", "ready": "/readyz"}[what]
	if !ok {
		fmt.Fprintf(stderr, "nodeagent probe: %q: want healthy or ready\n", what)
		return exitUsage
	}
	prefix := wellknown.DefaultStunnelConf
	set := settings.New("nodeagent probe")
	set.Group("Tunnels").Add(settings.Text(&prefix, "path", checkPrefix), "stunnel-conf", "STUNNEL_CONF_PATH", "the agent's")
	if err := set.Parse(args, getenv); err != nil {
		fmt.Fprintln(stderr, "nodeagent probe:", err)
		return exitUsage
	}
	report, err := askAgent(ctx, prefix, path)
	fmt.Fprint(stdout, report)
	if err != nil {
		fmt.Fprintln(stderr, "nodeagent probe:", err)
		return exitFailed
	}
	return exitDone
}

func askAgent(ctx context.Context, prefix, path string) (string, error) {
	dir, err := confdir.Open(prefix)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", dir.Socket())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return "", fmt.Errorf("asking the agent: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking the agent: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReport))
	if err != nil {
		return "", fmt.Errorf("asking the agent: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return string(body), errNotWell
	}
	return string(body), nil
}

var errNotWell = errors.New("it is not")
