package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

const probeUsage = "  nodeagent-supervise probe healthy|ready [flags]\n"

// Limits of --timeout.
const minProbeTimeout, maxProbeTimeout = 100 * time.Millisecond, 5 * time.Minute

// probeOptions are checked settings.
type probeOptions struct {
	stunnelConf string
	timeout     time.Duration
	path        string // of the HTTP request
}

func parseProbe(args []string, getenv func(string) string) (probeOptions, *settings.Set, error) {
	o := probeOptions{stunnelConf: wellknown.DefaultStunnelConf, timeout: wellknown.DefaultAgentProbeTimeout}
	set := settings.New("nodeagent-supervise probe")
	g := set.Group("Probe")
	g.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that the agent has, from which the path of its socket is derived")
	g.Add(settings.Duration(&o.timeout, minProbeTimeout, maxProbeTimeout), "timeout", "AGENT_PROBE_TIMEOUT",
		"time for the agent's answer; less than timeoutSeconds of the probe, or the kubelet kills the probe before it can write why it failed")
	what := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	if err := set.Parse(args, getenv); err != nil {
		return o, set, err
	}
	o.path = map[string]string{"healthy": "/healthz", "ready": "/readyz"}[what]
	if o.path == "" {
		return o, set, fmt.Errorf("%q: want healthy or ready", what)
	}
	return o, set, nil
}

// probe queries the health or readiness of this pod's agent. The kubelet runs it, and records its
// stderr in an event of the pod.
func probe(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, set, err := parseProbe(args, getenv)
	if err != nil {
		return program.ExitWithout(set, err, probeUsage, stdout, stderr)
	}
	body, err := o.query(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "nodeagent-supervise probe:", err)
		return program.ExitFailed
	}
	fmt.Fprint(stdout, body)
	return program.ExitDone
}

// query returns the body of the agent's response, or an error that names socket and path.
func (o probeOptions) query(ctx context.Context) (string, error) {
	dir, err := confdir.Open(o.stunnelConf)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	status, body, err := get(ctx, dir.Socket(), o.path)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s; change --timeout or AGENT_PROBE_TIMEOUT for a longer one", settings.Short(o.timeout))
	case err == nil && status != "200 OK":
		err = fmt.Errorf("status %s\n%s", status, strings.TrimSpace(body))
	}
	if err != nil {
		return "", fmt.Errorf("getting %s from the agent at %s: %w", o.path, dir.Socket(), err)
	}
	return body, nil
}

// maxResponse bounds the output of the probe, of which the kubelet keeps 10 KiB.
const maxResponse = 8 << 10

// get sends an HTTP/1.0 request to a unix socket, and returns code and reason phrase of the response
// in status. It does without net/http and its crypto/tls, which would double the size of this program
// and cost 2.6 MiB of memory on each node.
func get(ctx context.Context, socket, path string) (status, body string, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", errors.New("no such socket: the agent has not started, or has another STUNNEL_CONF_PATH")
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", "", errors.New("no process listens on the socket: the agent has exited")
	case err != nil:
		return "", "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // makes blocked reads and writes fail
	})()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return "", "", err
	}
	response, err := io.ReadAll(io.LimitReader(conn, maxResponse)) // the server closes the connection
	if err != nil {
		return "", "", fmt.Errorf("reading the response: %w", err)
	}
	head, body, complete := strings.Cut(string(response), "\r\n\r\n")
	line, _, _ := strings.Cut(head, "\r\n")
	version, status, found := strings.Cut(line, " ")
	switch {
	case !found || !strings.HasPrefix(version, "HTTP/1."):
		return "", "", fmt.Errorf("reading the response: %q is not HTTP", line)
	case !complete:
		return "", "", fmt.Errorf("reading the response: %q is not all of its head", head)
	}
	return status, body, nil
}
