package sharedvolumes

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/controller/caches"
)

// metrics counts objects from the cache, so that no series outlives what it is about.
type metrics struct {
	repairs prometheus.Counter
	objects *caches.SharedVolumes
	phases  *prometheus.Desc
}

func newMetrics(registry prometheus.Registerer, objects *caches.SharedVolumes) (*metrics, error) {
	m := &metrics{
		objects: objects,
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_shared_volume_repairs_total",
			Help: "Writes that put claims and volumes of SharedVolumes right.",
		}),
		phases: prometheus.NewDesc("efs_stunnel_manager_shared_volumes", "SharedVolumes.", []string{"phase"}, nil),
	}
	if err := errors.Join(registry.Register(m.repairs), registry.Register(m)); err != nil {
		return nil, fmt.Errorf("registering metrics of shared volumes: %w", err)
	}
	return m, nil
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
		phase := object.Status.Phase
		if phase == "" {
			phase = v1alpha1.Pending
		}
		counts[phase]++
	}
	for phase, count := range counts {
		out <- prometheus.MustNewConstMetric(m.phases, prometheus.GaugeValue, float64(count), string(phase))
	}
}
