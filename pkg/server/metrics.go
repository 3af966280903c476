package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

const namespace = "efs_stunnel_nfs_server"

// Metrics count restarts, and show certificate, disk and quotas.
type Metrics struct {
	restarts                               *prometheus.CounterVec
	certificateEnd, quotasFailing, limited prometheus.Gauge
}

// NewMetrics registers the metrics of a server with its disk mounted in a folder.
func NewMetrics(registry prometheus.Registerer, data string) *Metrics {
	factory, build := promauto.With(registry), buildinfo.Read()
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	}
	m := &Metrics{
		restarts: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "restarts_total", Help: "Starts of a program that had exited unexpectedly.",
		}, []string{"program"}),
		certificateEnd: gauge("certificate_end_timestamp_seconds", "When the server's certificate ends, 0 before the first."),
		quotasFailing:  gauge("quotas_failing", "1 while the sizes of volumes should be enforced (--quotas), and are not all enforced."),
		limited:        gauge("limited_directories", "Directories of volumes that are limited to the size of their claims."),
	}
	factory.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1.",
	}, []string{"version", "revision", "go_version"}).WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	disk := func(name, help string, blocks func(unix.Statfs_t) uint64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
			var s unix.Statfs_t
			if unix.Statfs(data, &s) != nil {
				return 0
			}
			return float64(blocks(s)) * float64(s.Bsize)
		})
	}
	disk("disk_size_bytes", "Size of the disk.", func(s unix.Statfs_t) uint64 { return s.Blocks })
	disk("disk_free_bytes", "Free space of the disk.", func(s unix.Statfs_t) uint64 { return s.Bavail })
	return m
}
