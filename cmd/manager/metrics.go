package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry" // has those of the Go runtime and the process

	// client-go's own metrics, under the names for which dashboards exist. Kubernetes' library
	// registers them no other way.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
)

const metricsNamespace = "efs_stunnel_manager"

// metrics are the manager's own; those of the loops are in the same registry.
type metrics struct {
	registry *prometheus.Registry
	dropped  *prometheus.CounterVec
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(leading func() bool, waited func() time.Duration, others ...prometheus.Collector) (*metrics, error) {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "events_dropped_total",
			Help: "Events that the apiserver refused, by its reason.",
		}, []string{"reason"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "aws_api_calls_total",
			Help: "Calls to the Amazon EFS API, by operation and by result: success, the API's error code, Timeout, Canceled or Unreachable.",
		}, []string{"operation", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "aws_api_call_duration_seconds",
			Help:    "Time that calls to the Amazon EFS API took, with retries.",
			Buckets: prometheus.ExponentialBuckets(0.02, 2, 12), // 20 ms to 41 s
		}, []string{"operation"}),
	}
	info := buildinfo.Read()
	own := []prometheus.Collector{
		m.dropped, m.calls, m.duration,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "leading", Help: "1 on the replica that leads, 0 on the others.",
		}, func() float64 { return number(leading()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "start_wait_seconds",
			Help: "How long this replica has been waiting for what it needs to start, or as the leader to begin; 0 when it does not wait.",
		}, func() float64 { return waited().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "build_info", Help: "Always 1; the labels say which build this is.",
			ConstLabels: prometheus.Labels{"version": info.Version, "revision": info.Revision, "go_version": info.Go},
		}, func() float64 { return 1 }),
	}
	for _, collector := range append(own, others...) {
		if err := m.registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// gatherer has everything that is served.
func (m *metrics) gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}
}

func (m *metrics) observeCall(operation, result string, took time.Duration) {
	m.calls.WithLabelValues(operation, result).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
}

func (m *metrics) countDropped(reason string) { m.dropped.WithLabelValues(reason).Inc() }
