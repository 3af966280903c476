// Package client has what manager and node agent have in common: settings, clients of the apiserver,
// metrics and events.
package client

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	awslogging "github.com/aws/smithy-go/logging"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"          // has those of the Go runtime and the process
	_ "k8s.io/component-base/metrics/prometheus/restclient" // client-go's own, under their known names

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// EventTimeout limits each request of a client for events.
const EventTimeout = 10 * time.Second

// Program has the log and the metrics that manager and node agent are built on.
type Program struct {
	Log       *slog.Logger
	Forbidden *forbidden.Tracker
	Metrics   *prometheus.Registry
	dropped   *prometheus.CounterVec
}

// New makes a Program. namespace is the first part of its metrics' names.
func New(namespace string, log *slog.Logger) *Program {
	p := &Program{Log: log, Forbidden: forbidden.New(namespace, log, time.Now), Metrics: prometheus.NewRegistry()}
	p.Metrics.MustRegister(p.Forbidden)
	factory, info := promauto.With(p.Metrics), buildinfo.Read()
	p.dropped = factory.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "events_dropped_total", Help: "Events that the apiserver refused, by its reason.",
	}, []string{"reason"})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": info.Version, "revision": info.Revision, "go_version": info.Go},
	}, func() float64 { return 1 })
	return p
}

// Gatherer returns the program's metrics, and those of the Kubernetes libraries.
func (p *Program) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{p.Metrics, legacyregistry.DefaultGatherer}
}

// Configure returns a copy of a configuration for clients of this program.
func (p *Program) Configure(config *rest.Config, name string) *rest.Config {
	config = rest.CopyConfig(config)
	config.UserAgent = name + "/" + buildinfo.Read().Version
	// Protobuf takes a third of JSON's time and memory, of which there are ten thousand volumes.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.Wrap(p.Forbidden.Wrap)
	return config
}

// NewClient makes a client with limits of its own, so that its requests do not wait for those of others.
// A timeout of 0 is none, for watches.
func NewClient(config *rest.Config, qps float32, burst int, timeout time.Duration) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.Timeout = qps, burst, timeout
	return kubernetes.NewForConfig(config)
}

// StartEvents begins to write events; the clients are those of events.Start.
func (p *Program) StartEvents(warnings, normal kubernetes.Interface) *events.Broadcast {
	return events.Start(warnings, normal, p.CountDropped, p.Log)
}

// CountDropped counts an event that the apiserver refused.
func (p *Program) CountDropped(reason string) { p.dropped.WithLabelValues(reason).Inc() }

// SDKLogger logs the lines of the AWS SDK at level debug. What matters is returned as an error.
func (p *Program) SDKLogger() awslogging.Logger {
	return awslogging.LoggerFunc(func(_ awslogging.Classification, format string, v ...any) {
		p.Log.Debug("aws sdk", "line", fmt.Sprintf(format, v...))
	})
}

// NamespaceFile holds the name of a pod's namespace.
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Environment is the source of settings besides arguments.
type Environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
}

// ProcessEnvironment returns that of the process.
func ProcessEnvironment() Environment { return Environment{os.Getenv, os.ReadFile} }

// Namespace returns the pod's namespace, or that of the manifests outside a cluster.
func (e Environment) Namespace() string {
	if text, err := e.ReadFile(NamespaceFile); err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text))
	}
	return wellknown.Namespace
}

// Options are the settings that manager and node agent have in common.
type Options struct {
	Namespace          string
	Kubeconfig, Master string
	HTTPAddress        string
	Pprof              bool
	Log                program.Log
}

// AddAPI adds the settings for the Kubernetes API to a group; namespaceOf is what the namespace is for.
func (o *Options) AddAPI(g *settings.Group, namespaceOf string) {
	g.Add(settings.Text(&o.Namespace, "namespace", CheckNamespace), "namespace", "NAMESPACE",
		"`namespace` of "+namespaceOf)
	g.Rare().Add(settings.Text(&o.Kubeconfig, "file", anything), "kubeconfig", "",
		"`file` that says how to reach the apiserver from outside a cluster")
	g.Rare().Add(settings.Text(&o.Master, "url", anything), "master", "",
		"`url` of the apiserver, over that of --kubeconfig")
}

// AddObservation adds the settings for logs, health and metrics to a group.
func (o *Options) AddObservation(g *settings.Group) {
	g.Add(settings.Text(&o.HTTPAddress, "host:port", settings.CheckAddress), "http-address", "",
		"`host:port` of /healthz, /readyz and /metrics; no host is all addresses")
	g.Rare().Add(settings.Bool(&o.Pprof), "pprof", "",
		"serve /debug/pprof at --http-address, too, to clients on the loopback")
	o.Log.Add(g)
}

// RESTConfig returns the configuration of clients for the apiserver. It sends no request.
func (o *Options) RESTConfig() (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("looking for the apiserver from inside a cluster (outside, set --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(o.Master, o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig %q: %w", o.Kubeconfig, err)
	}
	return config, nil
}

// Errors of the checks say what is wanted; package settings puts setting and value before them.

func anything(string) error { return nil }

// CheckNamespace checks the name of a namespace.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return errors.New(`want the name of a namespace: 1 to 63 lower-case letters, digits or "-"`)
	}
	return nil
}

// CheckName returns a check of the names of other objects; what is "an object" or "a node".
func CheckName(what string) func(string) error {
	return func(name string) error {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf(`want the name of %s: 1 to 253 lower-case letters, digits, "-" or "."`, what)
		}
		return nil
	}
}

var region = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// CheckRegion checks the name of an AWS region, which becomes part of host names.
func CheckRegion(name string) error {
	if !region.MatchString(name) {
		return errors.New("want the name of an AWS region, as us-east-1")
	}
	return nil
}
