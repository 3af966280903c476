package jobs

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type metrics struct {
	known sync.Map // the file systems with a series

	jobs       *prometheus.CounterVec
	operations *prometheus.CounterVec
	batches    prometheus.Histogram
	trash      *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	register := promauto.With(registry)
	m := &metrics{
		jobs: register.NewCounterVec(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_jobs_created_total",
			Help: "Kubernetes Jobs created, by kind: mount, clone, sweep or survey.",
		}, []string{"kind"}),
		operations: register.NewCounterVec(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_operations_total",
			Help: "Operations sent to mount Jobs, by way: with a new job, or to the worker of one that waits.",
		}, []string{"way"}),
		batches: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_mount_job_operations",
			Help:    "Operations in a batch of a mount Job.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
		}),
		trash: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "efs_stunnel_manager_trash_directories",
			Help: "Directories of deleted volumes in the trash, as the last sweep counted them, or where they are many one of the last hour.",
		}, []string{"file_system"}),
	}
	m.jobs.WithLabelValues("mount") // Prometheus does not count what a series begins with
	m.operations.WithLabelValues("job")
	m.operations.WithLabelValues("worker")
	return m
}

// created counts a Job.
func (m *metrics) created(kind mountjobs.Kind) {
	labels := map[mountjobs.Kind]string{mountjobs.Mount: "mount", mountjobs.Clone: "clone", mountjobs.Sweep: "sweep", mountjobs.Survey: "survey"}
	m.jobs.WithLabelValues(labels[kind]).Inc()
}

// sent counts the operations of one batch.
func (m *metrics) sent(way string, operations int) {
	m.operations.WithLabelValues(way).Add(float64(operations))
	m.batches.Observe(float64(operations))
}

// swept has one series for each file system, of which a cluster has tens.
func (m *metrics) swept(fileSystemID string, s operations.Swept) {
	m.known.Store(fileSystemID, nil)
	m.trash.WithLabelValues(fileSystemID).Set(float64(s.Kept))
}

// keepOnly drops the series of file systems that have left the table, and returns those.
func (m *metrics) keepOnly(table map[string]volumes.Candidate) (dropped []string) {
	for key := range m.known.Range {
		id, _ := key.(string)
		if _, ok := table[id]; !ok {
			m.known.Delete(id)
			m.trash.DeleteLabelValues(id)
			dropped = append(dropped, id)
		}
	}
	return dropped
}
