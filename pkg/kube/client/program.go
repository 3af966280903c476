// Package client has what manager and node agent have in common: settings, clients of the apiserver,
// metrics and events.
package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	awslogging "github.com/aws/smithy-go/logging"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"          // has those of the Go runtime and the process
	_ "k8s.io/component-base/metrics/prometheus/restclient" // client-go's own, under their known names

	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

// EventTimeout limits each request of a client for events.
const EventTimeout = 10 * time.Second

// flushTimeout limits the time in which a program that ends writes its events.
const flushTimeout = 3 * time.Second

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

// StartEvents begins to write events; the arguments are those of events.Options.
func (p *Program) StartEvents(warnings, normal kubernetes.Interface, subject func(*corev1.Event) string) *events.Broadcast {
	return events.Start(events.Options{Warnings: warnings, Normal: normal, Component: "efs-stunnel", Subject: subject, Dropped: p.CountDropped, Log: p.Log})
}

// CountDropped counts an event that the apiserver refused.
func (p *Program) CountDropped(reason string) { p.dropped.WithLabelValues(reason).Inc() }

// CloseEvents writes the remaining events, for which the context may have ended.
func CloseEvents(ctx context.Context, broadcast *events.Broadcast) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	broadcast.Close(ctx)
}

// SDKLogger logs the lines of the AWS SDK at level debug. What matters is returned as an error.
func (p *Program) SDKLogger() awslogging.Logger {
	return awslogging.LoggerFunc(func(_ awslogging.Classification, format string, v ...any) {
		p.Log.Debug("aws sdk", "line", fmt.Sprintf(format, v...))
	})
}
