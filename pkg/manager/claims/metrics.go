package claims

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

type metrics struct {
	provisioned *prometheus.HistogramVec
	deleted     prometheus.Histogram
}

// wayOf returns the way by which an operation was sent, as in efs_stunnel_manager_operations_total.
func wayOf(batch int) string {
	if batch > operations.FirstBatch {
		return "worker"
	}
	return "job"
}

// buckets reach as far as people wait: a mount Job's deadline is ten minutes.
func buckets() []float64 { return []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600} }

// secondsSince never returns a negative number, which would make the histogram's sum fall: times in objects are cut to
// seconds, and may be of another control plane node's clock.
func secondsSince(at, now time.Time) float64 { return max(now.Sub(at), 0).Seconds() }

func newMetrics(registry prometheus.Registerer) metrics {
	register := promauto.With(registry)
	m := metrics{
		provisioned: register.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_provision_duration_seconds",
			Help:    "Time from a claim's creation to its volume's, by way: with a new job, or by the worker of one that waits.",
			Buckets: buckets(),
		}, []string{"way"}),
		deleted: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_delete_duration_seconds",
			Help:    "Time from a volume's release to its deletion.",
			Buckets: buckets(),
		}),
	}
	for _, batch := range []int{operations.FirstBatch, operations.FirstBatch + 1} {
		m.provisioned.WithLabelValues(wayOf(batch)) // Prometheus does not count what a series begins with
	}
	return m
}
