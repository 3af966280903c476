package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	awslogging "github.com/aws/smithy-go/logging"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"          // has those of the Go runtime and the process
	_ "k8s.io/component-base/metrics/prometheus/restclient" // client-go's own, under their known names

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/events"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
	"gnuthought.com/efs-stunnel/pkg/httpserver"
	"gnuthought.com/efs-stunnel/pkg/topology"
	"gnuthought.com/efs-stunnel/pkg/tunnel/agent"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/tunnel/credentials"
	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	metricsNamespace = "efs_stunnel_node"
	component        = "efs-stunnel" // the source of events
	// There is one of these on every node, so each asks little.
	agentQPS, agentBurst = 5, 10
	eventTimeout         = 10 * time.Second
)

// wiring is what an agent is made of, and what ends after it.
type wiring struct {
	options agent.Options
	events  *events.Broadcast
}

func wireAgent(o agentOptions, log *slog.Logger) (wiring, error) {
	dir, err := confdir.Open(o.stunnelConf)
	if err != nil {
		return wiring{}, err
	}
	metadata, err := topology.NewMetadata(os.Getenv, sdkLogger(log))
	if err != nil {
		return wiring{}, err
	}
	tracker := forbidden.New(metricsNamespace, log, time.Now)
	work, forEvents, err := newClients(o, tracker)
	if err != nil {
		return wiring{}, err
	}
	registry, dropped := prometheus.NewRegistry(), droppedEvents()
	for _, collector := range []prometheus.Collector{tracker, dropped, buildMetric()} {
		if err := registry.Register(collector); err != nil {
			return wiring{}, fmt.Errorf("making metrics: %w", err)
		}
	}
	broadcast := events.Start(events.Options{
		Client: forEvents, Component: component, Log: log,
		Apart:   func(event *corev1.Event) string { return event.Annotations[wellknown.AnnotationTunnel] },
		Dropped: func(reason string) { dropped.WithLabelValues(reason).Inc() },
	})
	return wiring{events: broadcast, options: agent.Options{
		Client: work, Namespace: o.namespace, Node: o.node, Dir: dir, Region: o.region,
		Routing: routing.Settings{CAFile: o.caFile, ServerPort: wellknown.NFSPort, Reserved: reserved(o.httpAddress)},
		Metadata: func(ctx context.Context) (routing.Location, error) {
			location, err := metadata.Location(ctx)
			return routing.Location(location), err
		},
		Credentials:   credentials.Chain{Log: sdkLogger(log)}.Find,
		Dialer:        &probe.Network{CAFile: o.caFile, Log: log},
		Clients:       func() (sockets.ClientCounts, error) { return sockets.Clients(sockets.OwnUID()) },
		Status:        func() (supervise.Status, error) { return supervise.ReadStatus(dir) },
		ProbeInterval: o.probeInterval, HealthWait: wellknown.FirstHealthWait, RemoveStartupTaint: o.removeStartupTaint,
		ProcSys: os.DirFS("/proc/sys"),
		HTTP: httpserver.Options{
			Address: o.httpAddress, Pprof: o.pprof, Log: log,
			Metrics: prometheus.Gatherers{registry, legacyregistry.DefaultGatherer},
		},
		Events: broadcast.Recorder(), Metrics: registry, Log: log,
	}}, nil
}

// closeEvents has what was recorded last written.
func (w wiring) closeEvents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventFlush)
	defer cancel()
	w.events.Close(ctx)
}

// reserved are ports that no tunnel may take.
func reserved(httpAddress string) []int {
	ports := []int{wellknown.AgentHTTPPort}
	if _, text, err := net.SplitHostPort(httpAddress); err == nil {
		if port, err := strconv.Atoi(text); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// newClients keeps events from waiting for other requests, and the other way round.
func newClients(o agentOptions, tracker *forbidden.Tracker) (work, forEvents kubernetes.Interface, err error) {
	base, err := restConfig(o.kubeconfig, o.master)
	if err != nil {
		return nil, nil, err
	}
	base.UserAgent = "efs-stunnel-node/" + buildinfo.Read().Version
	base.ContentType = runtime.ContentTypeProtobuf
	base.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	base.QPS, base.Burst = agentQPS, agentBurst
	base.Wrap(tracker.Wrap)
	if work, err = kubernetes.NewForConfig(base); err != nil {
		return nil, nil, fmt.Errorf("making a client for the apiserver: %w", err)
	}
	own := rest.CopyConfig(base)
	own.Timeout = eventTimeout
	if forEvents, err = kubernetes.NewForConfig(own); err != nil {
		return nil, nil, fmt.Errorf("making a client for the apiserver: %w", err)
	}
	return work, forEvents, nil
}

// restConfig says how to reach the apiserver; it does not ask it anything.
func restConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("looking for the apiserver from inside a cluster (outside, set --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

func droppedEvents() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsNamespace, Name: "events_dropped_total",
		Help: "Events that the apiserver refused, by its reason.",
	}, []string{"reason"})
}

func buildMetric() prometheus.Collector {
	info := buildinfo.Read()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": info.Version, "revision": info.Revision, "go_version": info.Go},
	}, func() float64 { return 1 })
}

// sdkLogger keeps the SDK from writing lines of its own. What matters comes as errors.
func sdkLogger(log *slog.Logger) awslogging.Logger {
	return awslogging.LoggerFunc(func(_ awslogging.Classification, format string, v ...any) {
		log.Debug("aws sdk", "reason", fmt.Sprintf(format, v...))
	})
}
