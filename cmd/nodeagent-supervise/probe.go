package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/settings"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Limits of --timeout.
const minProbeTimeout, maxProbeTimeout = 100 * time.Millisecond, 5 * time.Minute

// probeOptions are checked settings.
type probeOptions struct {
	stunnelConf string
	timeout     time.Duration
	path        string // that is asked for
}

func parseProbe(args []string, getenv func(string) string) (probeOptions, *settings.Set, error) {
	o := probeOptions{stunnelConf: wellknown.DefaultStunnelConf, timeout: wellknown.DefaultAgentProbeTimeout}
	set := settings.New("nodeagent-supervise probe")
	g := set.Group("Probe")
	g.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that the agent was given, beside which its socket lies")
	g.Add(settings.Duration(&o.timeout, minProbeTimeout, maxProbeTimeout), "timeout", "AGENT_PROBE_TIMEOUT",
		"time for the agent's answer; less than kubelet's timeoutSeconds, or kubelet ends the probe before it can say why it failed")
	what := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	if err := set.Parse(args, getenv); err != nil {
		return o, set, err
	}
	switch what {
	case "healthy":
		o.path = "/healthz"
	case "ready":
		o.path = "/readyz"
	default:
		return o, set, fmt.Errorf("%q: want healthy or ready", what)
	}
	return o, set, nil
}

// probe asks the agent of this pod how it is. It is what kubelet runs, and what it writes to
// stderr is in the pod's events.
func probe(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, set, err := parseProbe(args, getenv)
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Fprintf(stdout, "Usage:\n  nodeagent-supervise probe healthy|ready [flags]\n%s", set.Help())
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "nodeagent-supervise probe:", err)
		return exitUsage
	}
	report, err := o.ask(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "nodeagent-supervise probe:", err)
		return exitFailed
	}
	fmt.Fprint(stdout, report)
	return exitDone
}

// ask returns the agent's report, or an error that says which socket was asked for what, and
// what came back.
func (o probeOptions) ask(ctx context.Context) (report string, err error) {
	dir, err := confdir.Open(o.stunnelConf)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	answer, err := get(ctx, dir.Socket(), o.path)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s; set --timeout or AGENT_PROBE_TIMEOUT for another time", settings.Short(o.timeout))
	case err == nil && answer.status != statusOK:
		err = fmt.Errorf("answer %s\n%s", answer.status, strings.TrimSpace(answer.body))
	}
	if err != nil {
		return "", fmt.Errorf("asking the agent at %s for %s: %w", dir.Socket(), o.path, err)
	}
	return answer.body, nil
}
