package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

const metricsNamespace = "efs_stunnel_node"

// metrics are those that the agent updates itself.
type metrics struct {
	probes    *prometheus.HistogramVec
	late      prometheus.Counter
	actions   *prometheus.CounterVec
	failed    prometheus.Gauge
	watches   prometheus.Counter
	reads     prometheus.Counter
	ephemeral prometheus.Gauge
	sockets   prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help})
	}
	m := &metrics{
		probes: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "probe_duration_seconds",
			Help:    "Time of NFS NULL calls through all tunnels, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 13), // 0.5 ms to 2 s
		}, []string{"result"}),
		late: counter("probes_late_total", "Rounds of probes without a result, because the agent did not run in time: its timers fired more than 0.5 s late, or connecting to the node's own address took more than 0.2 s. If it keeps growing, the node has too little processor time for the agent, and a silent mount target is detected late."),
		actions: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "tunnel_steps_total",
			Help: "Actions on tunnels: Reorder (another mount target for new connections), Failover (for all), Renew (restart with the same one: its connections are stuck, or it closes new ones in five rounds, none is open, and the mount target answers), Return (to the nearest).",
		}, []string{"step"}),
		failed:    gauge("apply_failing", "1 while the tunnels' files cannot be written."),
		watches:   counter("watch_errors_total", "Watches of the apiserver that ended with an error."),
		reads:     counter("table_reads_total", "Readings of the whole table, because ConfigMap efs-stunnel-view did not have its version in time or could not be read."),
		ephemeral: gauge("ephemeral_tunnel_ports", "Ports of tunnels that the node's kernel may assign to any process: event PortInEphemeralRange."),
		sockets:   gauge("sockets_unknown", "1 while the agent cannot list the node's connections, neither by the kernel's socket diagnostics nor in /proc: every tunnel counts as used, and redirected ports are not detected."),
	}
	for _, action := range []routing.Action{routing.Reorder, routing.Failover, routing.Restart, routing.Return} {
		m.actions.WithLabelValues(string(action))
	}
	return m
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// tunnelMetrics are made from the snapshot at each scrape, so that none outlives its tunnel.
type tunnelMetrics struct {
	read  func() *snapshot
	descs []*prometheus.Desc // all of the following

	tableUsable, tableUpdated, locationKnown, statusAge, hijacked *prometheus.Desc
	up, listening, standby, active, otherZone, took, lastError    *prometheus.Desc
	newFailing, probeAge                                          *prometheus.Desc
	restarts, reloads, problems, unusable                         *prometheus.Desc
	certificateUntil, certificateFailing                          *prometheus.Desc
	memory, memoryLimit                                           *prometheus.Desc
	lanes, waiting, latency                                       *prometheus.Desc
}

func newTunnelMetrics(read func() *snapshot) *tunnelMetrics {
	var descs []*prometheus.Desc
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(metricsNamespace+"_"+name, help, labels, nil)
		descs = append(descs, d)
		return d
	}
	m := &tunnelMetrics{
		read:          read,
		tableUsable:   desc("table_usable", "1 while the ConfigMap is there and all of it can be read."),
		tableUpdated:  desc("table_last_update_timestamp_seconds", "When the served table was changed last."),
		locationKnown: desc("place_known", "1 while the node's zone or subnet is known, without which no mount target is nearer than another."),
		statusAge:     desc("supervisor_status_age_seconds", "Time since the supervisor last wrote its status, or since the agent's start when it has written none. It writes at least every 10 s; above 30 s, the agent considers it stopped."),
		probeAge: desc("probe_age_seconds",
			"Time since the latest result of a probe, of the tunnel for which that is the longest; absent without tunnels. Late rounds have no result."),
		up: desc("tunnel_up", "1 while NFS calls through the tunnel are answered: over a new connection or, if those fail, over an open one while clients have any. Absent while the latest result of a probe is older than three intervals (45 s), so that it says nothing.", "tunnel"),
		newFailing: desc("tunnel_new_connections_failing",
			"1 while NFS calls over new connections are not answered, whether or not open ones go on; absent like tunnel_up.", "tunnel"),
		listening: desc("tunnel_listening", "1 while the tunnel's port is open and its process runs as it is configured; 0 also while stunnel, which has refused a change, serves as before.", "tunnel"),
		standby:   desc("tunnel_standby", "1 while the pod is not ready yet and tests the tunnel beside another pod that has its port.", "tunnel"),
		hijacked:  desc("tunnel_hijacked", "1 while new connections to the tunnel's port reach a pod or Service instead of the tunnel. One that volumes use is checked at least every 3 minutes, an unused one only when a mount or a mount Job connects. The component admission prevents it.", "tunnel"),
		active:    desc("tunnel_active_info", "Always 1; the mount target that the tunnel uses.", "tunnel", "address", "zone"),
		otherZone: desc("tunnel_other_zone", "1 while the tunnel uses a mount target outside of the node's zone.", "tunnel"),
		took:      desc("tunnel_probe_seconds", "Time of the latest NFS NULL call through the tunnel.", "tunnel"),
		lastError: desc("tunnel_problem", "1 for each current problem of the tunnel.", "tunnel", "reason"),
		restarts:  desc("tunnel_restarts_total", "Processes of the tunnel after the first.", "tunnel"),
		reloads:   desc("tunnel_reloads_total", "Configurations that its process took while it ran; one with each new client certificate, and with each change of the trusted roots.", "tunnel"),
		problems:  desc("tunnel_problems_total", "Problems of the tunnel, counted since the start of the supervisor.", "tunnel", "reason"),
		unusable:  desc("target_unusable", "1 for each target that cannot be served as the table has it.", "tunnel", "reason"),
		certificateUntil: desc("client_certificate_expiration_timestamp_seconds",
			"When servers stop accepting the tunnel's client certificate, or the credentials in it; absent while there is none.", "tunnel"),
		memory:             desc("tunnel_memory_bytes", "Memory of the tunnel's running process that counts towards its limit (VmData), read every 10 to 20 s; absent while no process runs.", "tunnel"),
		memoryLimit:        desc("tunnel_memory_limit_bytes", "Memory that the process of each tunnel may have; one that needs more exits, or rejects connections until it is restarted."),
		lanes:              desc("tunnel_lanes", "Connections to stunnel over which those of clients are spread, read every 10 to 20 s; absent without --lanes.", "tunnel"),
		waiting:            desc("tunnel_requests_waiting", "Requests of clients that wait for their answers; absent without --lanes.", "tunnel"),
		latency:            desc("tunnel_request_duration_seconds", "Time from a request of a client to its answer; absent without --lanes.", "tunnel"),
		certificateFailing: desc("client_certificate_failing", "1 while the tunnel's client certificate cannot be made or renewed.", "tunnel"),
	}
	m.descs = descs
	return m
}

// Describe implements prometheus.Collector.
func (m *tunnelMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (m *tunnelMetrics) Collect(to chan<- prometheus.Metric) {
	v := m.read()
	if v == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.tableUsable, number(v.hasTable && v.problem.err == nil && !v.problem.deleted && len(v.problem.rejected) == 0))
	gauge(m.tableUpdated, seconds(v.table.LastUpdate))
	gauge(m.locationKnown, number(v.location.Known()))
	gauge(m.statusAge, time.Since(v.statusSeenAt).Seconds())
	if len(v.tunnels) > 0 {
		oldest := slices.MinFunc(v.tunnels, func(a, b tunnelSnapshot) int { return a.resultAt.Compare(b.resultAt) })
		gauge(m.probeAge, time.Since(oldest.resultAt).Seconds())
	}
	if limit := v.status.MemoryLimit; limit > 0 {
		gauge(m.memoryLimit, float64(limit))
	}
	for _, t := range v.plan.Unusable {
		gauge(m.unusable, 1, t.Name, string(t.Reason))
	}
	for tunnel, c := range v.certificates {
		gauge(m.certificateFailing, number(c.Problem != ""), tunnel)
		if c.Sum != "" {
			gauge(m.certificateUntil, seconds(c.Until), tunnel)
		}
	}
	for _, t := range v.tunnels {
		m.collectTunnel(t, gauge)
		m.countTunnel(t, to)
	}
}

func (m *tunnelMetrics) collectTunnel(t tunnelSnapshot, gauge func(*prometheus.Desc, float64, ...string)) {
	if !t.unknown {
		gauge(m.up, number(t.up), t.name)
		gauge(m.newFailing, number(t.failing), t.name)
	}
	gauge(m.listening, number(t.inForce), t.name)
	gauge(m.standby, number(t.standby), t.name)
	gauge(m.hijacked, number(t.hijacked), t.name)
	gauge(m.active, 1, t.name, t.active.String(), t.zone)
	gauge(m.otherZone, number(t.otherZone), t.name)
	if t.probed {
		gauge(m.took, t.took.Seconds(), t.name)
	}
	if t.status.Memory > 0 {
		gauge(m.memory, float64(t.status.Memory), t.name)
	}
	if l := t.status.Lanes; l != nil {
		gauge(m.lanes, float64(l.Open), t.name)
		gauge(m.waiting, float64(l.Waiting), t.name)
	}
	for _, reason := range t.problems {
		gauge(m.lastError, 1, t.name, reason)
	}
}

func (m *tunnelMetrics) countTunnel(t tunnelSnapshot, to chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	count(m.restarts, t.status.Restarts, t.name)
	count(m.reloads, t.status.Reloads, t.name)
	for reason, times := range t.status.Problems {
		count(m.problems, times, t.name, string(reason))
	}
	if t.status.Lanes != nil {
		to <- m.latencyOf(t.name, *t.status.Lanes)
	}
}

// latencyOf makes a histogram of the supervisor's counts.
func (m *tunnelMetrics) latencyOf(tunnel string, l tunnelspec.Lanes) prometheus.Metric {
	buckets, total, bound := map[float64]uint64{}, uint64(0), tunnelspec.FirstLatency
	for i, counted := range l.Counts {
		total += counted
		if i < tunnelspec.LatencyBuckets {
			buckets[bound.Seconds()] = total
			bound *= 2
		}
	}
	return prometheus.MustNewConstHistogram(m.latency, total, l.Seconds, buckets, tunnel)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
