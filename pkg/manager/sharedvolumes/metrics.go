package sharedvolumes

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
)

// metrics counts objects from the cache, so that no series outlives what it is about.
type metrics struct {
	repairs prometheus.Counter
	objects *caches.SharedVolumes
	phases  *prometheus.Desc
}

func newMetrics(registry prometheus.Registerer, objects *caches.SharedVolumes) *metrics {
	m := &metrics{
		objects: objects,
		repairs: promauto.With(registry).NewCounter(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_shared_volume_repairs_total",
			Help: "Writes that put claims and volumes of SharedVolumes right.",
		}),
		phases: prometheus.NewDesc("efs_stunnel_manager_shared_volumes", "SharedVolumes.", []string{"phase"}, nil),
	}
	registry.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) { descs <- m.phases }

// Collect implements prometheus.Collector. Where the API is not installed there is nothing.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	all, known := m.objects.All()
	if !known || len(all) == 0 {
		return
	}
	counts := map[v1alpha1.Phase]int{v1alpha1.Pending: 0, v1alpha1.Ready: 0, v1alpha1.Deleting: 0, v1alpha1.Failed: 0}
	for _, object := range all {
		counts[cmp.Or(object.Status.Phase, v1alpha1.Pending)]++
	}
	for phase, count := range counts {
		out <- prometheus.MustNewConstMetric(m.phases, prometheus.GaugeValue, float64(count), string(phase))
	}
}
