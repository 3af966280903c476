package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// longestSync is client-go's metric of the age of a queue's oldest running sync.
const longestSync = "workqueue_longest_running_processor_seconds"

// maxSync is far longer than any sync takes; one that takes longer is stuck for good.
const maxSync = 10 * time.Minute

func (m *manager) http() httpserver.Options {
	return httpserver.Options{
		Address: m.options.HTTPAddress,
		Healthy: []httpserver.Check{
			{Name: "election", Func: m.checkElection},
			{Name: "syncs", Func: func() error { return checkSyncs(legacyregistry.DefaultGatherer) }}, // without the program's, of which each claim can have some
		},
		Ready: []httpserver.Check{
			{Name: "start", Func: m.checkStart},
			{Name: "rights", Func: func() error { return m.program.Forbidden.Check(neededToLead) }},
			{Name: "caches", Func: m.checkCaches},
		},
		Metrics: m.program.Gatherer(),
		Pprof:   m.options.Pprof,
		Log:     m.log,
	}
}

func (m *manager) checkElection() error {
	if m.election == nil {
		return nil
	}
	return m.election.Check()
}

func (m *manager) checkStart() error {
	if m.ending.Load() {
		return errors.New("the manager is ending")
	}
	if w := m.waits.Load(); w != nil {
		return w.check()
	}
	return nil
}

// neededToLead reports whether a replica cannot lead without a permission: one for the Lease, or for a cache. Other
// missing ones are in the log and the metrics only; claims, for one, work without SharedVolumes.
func neededToLead(p forbidden.Permission) bool {
	return p.Group == coordinationv1.GroupName ||
		(p.Verb == "list" || p.Verb == "watch") && p.Group != v1alpha1.GroupName
}

// checkCaches passes on standbys, too: they can lead.
func (m *manager) checkCaches() error {
	if w := m.workload.Load(); w == nil || !w.caches.HasSynced() {
		return errors.New("not all objects of the cluster have been read")
	}
	return nil
}

// checkSyncs fails while a worker of a loop is stuck, which only the metrics of the queues show.
func checkSyncs(metrics prometheus.Gatherer) error {
	families, err := metrics.Gather()
	if err != nil {
		return nil //nolint:nilerr // a metric that cannot be read is no reason for a restart
	}
	for _, family := range families {
		if family.GetName() != longestSync {
			continue
		}
		for _, metric := range family.GetMetric() {
			took := time.Duration(metric.GetGauge().GetValue() * float64(time.Second))
			if took > maxSync {
				return fmt.Errorf("a sync of loop %s takes %s, which is more than %s",
					metric.GetLabel()[0].GetValue(), took.Round(time.Second), maxSync)
			}
		}
	}
	return nil
}

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
