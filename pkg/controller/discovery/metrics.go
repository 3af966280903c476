package discovery

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "efs_stunnel_manager_"

// States of targets in metrics.
const (
	usable   = "usable"
	unusable = "unusable"
	missing  = "missing"
	waiting  = "waiting"
)

// numbers are what the gauges show.
type numbers struct {
	known                 bool // all but succeeded and unreadable
	portsInUse, portsFree int
	targets               map[string]int   // by state
	points                map[string]int   // access points, by state
	sizes                 map[string]int64 // in bytes, by file system
	succeeded             time.Time        // zero before the API has answered
	unreadable            map[string]bool  // by ConfigMap
	tableBytes            int              // of the stored table
	identityLooksWrong    bool             // of the manager at AWS
}

// metrics collects its gauges from the latest numbers, so that no series outlives its file
// system, and one that never led has none.
type metrics struct {
	polls       bool // there is an API that is asked; set before the first show
	latest      atomic.Pointer[numbers]
	failures    prometheus.Counter
	corrections prometheus.Counter
	rootWrites  prometheus.Counter
	notStored   prometheus.Counter

	tableBytes, identity, inUse, free, targets, points, sizes, succeeded, unreadable *prometheus.Desc
}

func newMetrics(o Options) (*metrics, error) {
	m := &metrics{
		failures:    counter("discovery_failures_total", "Polls of the EFS API, and questions to it, that failed."),
		corrections: counter("port_corrections_total", "Volumes whose port option was rewritten."),
		rootWrites:  counter("root_volume_writes_total", "Writes that made, mended or removed root volumes and root claims."),
		notStored:   counter("table_write_failures_total", "Writes of the port table that the apiserver refused, conflicts aside."),
		tableBytes:  describe("table_bytes", "Size of the stored port table. Newcomers get no port beyond 921600."),
		identity:    describe("identity_looks_wrong", "Whether the EFS API lists what seems to be another account's or region's file systems (1) or not (0)."),
		inUse:       describe("local_ports_in_use", "Local ports that belong to targets."),
		free:        describe("local_ports_free", "Local ports that new targets can get."),
		targets:     describe("targets", "Targets of the port table.", "state"),
		points:      describe("access_points", "Access points that SharedVolumes ask for.", "state"),
		sizes:       describe("file_system_size_bytes", "Metered size of the file system.", "file_system"),
		succeeded:   describe("discovery_last_success_timestamp_seconds", "When the EFS API last listed the file systems; 0 before this leader's first listing."),
		unreadable:  describe("table_unreadable", "Whether the ConfigMap cannot be read (1) or can (0).", "config_map"),
	}
	for _, c := range []prometheus.Collector{m.failures, m.corrections, m.rootWrites, m.notStored, m} {
		if err := o.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of discovery: %w", err)
		}
	}
	return m, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsPrefix+name, help, labels, nil)
}

func (m *metrics) failed() { m.failures.Inc() }

// show publishes numbers. Those that are not known stay as they were.
func (m *metrics) show(n numbers) {
	if before := m.latest.Load(); !n.known && before != nil {
		kept := *before
		kept.unreadable, kept.succeeded = n.unreadable, n.succeeded
		n = kept
	}
	m.latest.Store(&n)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.tableBytes, m.identity, m.inUse, m.free, m.targets, m.points, m.sizes, m.succeeded, m.unreadable} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	n := m.latest.Load()
	if n == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for name, bad := range n.unreadable {
		gauge(m.unreadable, truth(bad), name)
	}
	if m.polls {
		gauge(m.succeeded, seconds(n.succeeded))
	}
	if !n.known {
		return
	}
	gauge(m.tableBytes, float64(n.tableBytes))
	if m.polls {
		gauge(m.identity, truth(n.identityLooksWrong))
	}
	gauge(m.inUse, float64(n.portsInUse))
	gauge(m.free, float64(n.portsFree))
	for state, count := range n.targets {
		gauge(m.targets, float64(count), state)
	}
	for state, count := range n.points {
		gauge(m.points, float64(count), state)
	}
	for id, size := range n.sizes {
		gauge(m.sizes, float64(size), id)
	}
}

// seconds are those since 1970, 0 for never.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
