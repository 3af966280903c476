package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	// client-go's own metrics, under the names for which dashboards exist. Kubernetes' library
	// registers them no other way.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
)

const metricsNamespace = "efs_stunnel_manager"

// metrics are the manager's own; those of the loops are in the same registry.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry, leading func() bool, waited func() time.Duration) *metrics {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "leading", Help: "1 on the replica that leads, 0 on the others.",
	}, func() float64 {
		if leading() {
			return 1
		}
		return 0
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "start_wait_seconds",
		Help: "How long this replica has been waiting for what it needs to start, or as the leader to begin; 0 when it does not wait.",
	}, func() float64 { return waited().Seconds() })
	return &metrics{
		calls: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "aws_api_calls_total",
			Help: "Calls to the Amazon EFS API, by operation and by result: success, the API's error code, Timeout, Canceled or Unreachable.",
		}, []string{"operation", "result"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "aws_api_call_duration_seconds",
			Help:    "Time that calls to the Amazon EFS API took, with retries.",
			Buckets: prometheus.ExponentialBuckets(0.02, 2, 12), // 20 ms to 41 s
		}, []string{"operation"}),
	}
}

func (m *metrics) observeCall(operation, result string, took time.Duration) {
	m.calls.WithLabelValues(operation, result).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
}
