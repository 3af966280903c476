package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

const (
	// agentMemory is the size from which on garbage is collected without regard to processor time. The
	// agent needs less: with 1,000 targets, the probes' connections and goroutines take 22 MiB.
	agentMemory = 64 << 20
	// agentGarbage is the growth of the heap, in percent, after which garbage is collected. Every sync
	// of the tunnels makes some. Against Go's 100, this is 1 MiB less of every node with a hundred targets, and
	// 2 at the start, for 0.6 % of one processor.
	agentGarbage = 50
	agentUsage   = "  nodeagent [flags]\n  nodeagent supervise [flags]\n  nodeagent version\n" +
		"kubelet's probes are nodeagent-supervise probe healthy|ready.\n"
)

func agentRun(ctx context.Context, args []string, e client.Environment, stdout, stderr io.Writer) int {
	o, set, err := parseAgentOptions(args, e)
	if err != nil {
		return program.ExitWithout(set, err, agentUsage, stdout, stderr)
	}
	debug.SetMemoryLimit(agentMemory)
	debug.SetGCPercent(agentGarbage)
	log := o.Log.New(stderr)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	log.Info("node agent starts", "node", o.node, "version", buildinfo.Read().String())
	options, broadcast, err := wireAgent(o, log)
	if err == nil {
		err = agent.New(options).Run(ctx)
		client.CloseEvents(ctx, broadcast)
	}
	if err != nil {
		log.Error("node agent ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("node agent ends; the tunnels stay")
	return program.ExitDone
}

const (
	metricsNamespace = "efs_stunnel_node"
	// Limits of each client. Every node has an agent, so they are low.
	agentQPS, agentBurst = 5, 10
)

// wireAgent returns the options of the agent, and its events, which are closed after it.
func wireAgent(o agentOptions, log *slog.Logger) (agent.Options, *events.Broadcast, error) {
	p := client.New(metricsNamespace, log)
	dir, err := confdir.Open(o.stunnelConf)
	if err != nil {
		return agent.Options{}, nil, err
	}
	metadata, err := topology.NewMetadata(os.Getenv, p.SDKLogger())
	if err != nil {
		return agent.Options{}, nil, err
	}
	config, err := o.RESTConfig()
	if err != nil {
		return agent.Options{}, nil, err
	}
	config = p.Configure(config, "efs-stunnel-node")
	work, err := client.NewClient(config, agentQPS, agentBurst, 0)
	forEvents, eventsErr := client.NewClient(config, agentQPS, agentBurst, client.EventTimeout)
	forStatus, statusErr := dynamic.NewForConfig(config)
	if err := errors.Join(err, eventsErr, statusErr); err != nil {
		return agent.Options{}, nil, fmt.Errorf("making clients for the apiserver: %w", err)
	}
	broadcast := p.StartEvents(forEvents, forEvents, func(event *corev1.Event) string { return event.Annotations[wellknown.AnnotationTunnel] })
	listed := &sockets.Lister{}
	return agent.Options{
		Client: work, Namespace: o.Namespace, Node: o.node, Dir: dir, Region: o.region,
		Routing: routing.Settings{CAFile: o.caFile, ServerPort: wellknown.NFSPort, Reserved: reserved(o.HTTPAddress)},
		Metadata: func(ctx context.Context) (routing.Location, error) {
			location, err := metadata.Location(ctx)
			return routing.Location(location), err
		},
		HasRoute:      topology.HasRoute,
		Credentials:   certificates.Chain{Log: p.SDKLogger()}.Find,
		Dialer:        &probe.Network{CAFile: o.caFile, Log: log},
		Clients:       func() (sockets.ClientCounts, error) { return listed.Clients(sockets.OwnUID()) },
		Listening:     func() (sockets.Listeners, error) { return listed.ListeningAs(sockets.OwnUID()) },
		Status:        func() (tunnelspec.Status, error) { return supervise.ReadStatus(dir) },
		ProbeInterval: o.probeInterval, HealthWait: wellknown.FirstHealthWait, RemoveStartupTaint: o.removeStartupTaint,
		ProcSys:     os.DirFS("/proc/sys"),
		WriteStatus: statusWriter(forStatus),
		HTTP:        httpserver.Options{Address: o.HTTPAddress, Pprof: o.Pprof, Log: log, Metrics: p.Gatherer()},
		Events:      broadcast.Recorder(), Metrics: p.Metrics, Log: log,
	}, broadcast, nil
}

// statusWriter returns what writes the NodeTunnels of a node, which owns it.
func statusWriter(objectClient dynamic.Interface) func(context.Context, *corev1.Node, v1alpha1.NodeTunnelsStatus) error {
	w := objects.StatusWriter{Client: objectClient, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}
	return func(ctx context.Context, node *corev1.Node, status v1alpha1.NodeTunnelsStatus) error {
		ctx, cancel := context.WithTimeout(ctx, client.EventTimeout)
		defer cancel()
		return w.Write(ctx, node.Name, status, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	}
}

// reserved returns the ports that no tunnel may use.
func reserved(httpAddress string) []int {
	ports := []int{wellknown.AgentHTTPPort}
	if _, text, err := net.SplitHostPort(httpAddress); err == nil {
		if port, err := strconv.Atoi(text); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}
