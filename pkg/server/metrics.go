package server

import (
	"github.com/prometheus/client_golang/prometheus"
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
	build := buildinfo.Read()
	m := &Metrics{
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "restarts_total", Help: "Starts of a program that had exited unexpectedly.",
		}, []string{"program"}),
		certificateEnd: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "certificate_end_timestamp_seconds", Help: "When the server's certificate ends, 0 before the first.",
		}),
	}
	m.quotasFailing = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "quotas_failing", Help: "1 while the sizes of volumes should be enforced (--quotas), and are not all enforced.",
	})
	m.limited = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "limited_directories", Help: "Directories of volumes that are limited to the size of their claims.",
	})
	information := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1.",
	}, []string{"version", "revision", "go_version"})
	information.WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	registry.MustRegister(m.restarts, m.certificateEnd, m.quotasFailing, m.limited, information,
		diskGauge("disk_size_bytes", "Size of the disk.", data, func(s unix.Statfs_t) uint64 { return s.Blocks }),
		diskGauge("disk_free_bytes", "Free space of the disk.", data, func(s unix.Statfs_t) uint64 { return s.Bavail }))
	return m
}

// diskGauge makes a gauge of a number of the disk's blocks.
func diskGauge(name, help, data string, blocks func(unix.Statfs_t) uint64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
		var s unix.Statfs_t
		if unix.Statfs(data, &s) != nil {
			return 0
		}
		return float64(blocks(s)) * float64(s.Bsize)
	})
}
