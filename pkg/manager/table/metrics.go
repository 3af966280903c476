package table

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "efs_stunnel_manager_"

// States of targets and access points in metrics.
const (
	usable   = "usable"
	unusable = "unusable"
	missing  = "missing"
	waiting  = "waiting"
)

// Names of gauges, as they are after the prefix.
const (
	tableBytes     = "table_bytes"
	identity       = "identity_looks_wrong"
	portsInUse     = "local_ports_in_use"
	portsFree      = "local_ports_free"
	targetCount    = "targets"
	pointCount     = "access_points"
	fileSystemSize = "file_system_size_bytes"
	lastSuccess    = "discovery_last_success_timestamp_seconds"
	pollInterval   = "discovery_interval_seconds"
	unreadable     = "table_unreadable"
)

// numbers are what gauges show, by the gauge's name and the value of its label, "" without one.
type numbers map[string]map[string]float64

// one is the number of a gauge without a label.
func one(value float64) map[string]float64 { return map[string]float64{"": value} }

// metrics collects its gauges from the latest numbers, so that no series outlives its file
// system, and a standby has none.
type metrics struct {
	interval    time.Duration // between polls of the API, 0 if there is none; set before the first show
	latest      atomic.Pointer[numbers]
	gauges      map[string]*prometheus.Desc
	failures    prometheus.Counter
	corrections prometheus.Counter
	rootWrites  prometheus.Counter
	notStored   prometheus.Counter
}

func newMetrics(o Options) (*metrics, error) {
	m := &metrics{
		failures:    counter("discovery_failures_total", "Polls of the EFS API, and questions to it, that failed."),
		corrections: counter("port_corrections_total", "Volumes whose port option was rewritten."),
		rootWrites:  counter("root_volume_writes_total", "Writes that made, mended or removed root volumes and root claims."),
		notStored:   counter("table_write_failures_total", "Writes of the port table that the apiserver refused, conflicts aside."),
		gauges:      map[string]*prometheus.Desc{},
	}
	for _, g := range []struct {
		name, help string
		labels     []string
	}{
		{tableBytes, "Size of the stored port table. Newcomers get no port beyond 921600.", nil},
		{identity, "Whether the EFS API lists what seems to be another account's or region's file systems (1) or not (0).", nil},
		{portsInUse, "Local ports that belong to targets.", nil},
		{portsFree, "Local ports that new targets can get.", nil},
		{targetCount, "Targets of the port table.", []string{"state"}},
		{pointCount, "Access points that SharedVolumes ask for.", []string{"state"}},
		{fileSystemSize, "Metered size of the file system.", []string{"file_system"}},
		{lastSuccess, "When the EFS API last listed the file systems; 0 before this leader's first listing.", nil},
		{pollInterval, "Time from one poll of the EFS API to the next, unless one fails.", nil},
		{unreadable, "Whether the ConfigMap cannot be read (1) or can (0).", []string{"config_map"}},
	} {
		m.gauges[g.name] = prometheus.NewDesc(metricsPrefix+g.name, g.help, g.labels, nil)
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

// show publishes numbers. Gauges that are not among them stay as they were.
func (m *metrics) show(n numbers) {
	next := numbers{}
	if before := m.latest.Load(); before != nil {
		maps.Copy(next, *before)
	}
	maps.Copy(next, n)
	m.latest.Store(&next)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range m.gauges {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	latest := m.latest.Load()
	if latest == nil {
		return
	}
	for name, values := range *latest {
		if m.interval == 0 && (name == lastSuccess || name == identity) {
			continue
		}
		for label, value := range values {
			labels := []string{label}
			if label == "" {
				labels = nil
			}
			out <- prometheus.MustNewConstMetric(m.gauges[name], prometheus.GaugeValue, value, labels...)
		}
	}
	if m.interval > 0 {
		out <- prometheus.MustNewConstMetric(m.gauges[pollInterval], prometheus.GaugeValue, m.interval.Seconds())
	}
}

// seconds are those since 1970, 0 for never.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
