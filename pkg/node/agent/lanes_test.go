package agent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

func TestMetricsOfLanes(t *testing.T) {
	counts := make([]uint64, tunnelspec.LatencyBuckets+1)
	counts[0], counts[2], counts[tunnelspec.LatencyBuckets] = 5, 3, 1
	s := &snapshot{tunnels: []tunnelSnapshot{
		{name: "fs-1", status: tunnelspec.TunnelStatus{Lanes: &tunnelspec.Lanes{Open: 4, Waiting: 7, Counts: counts, Seconds: 2.5}}},
		{name: "fs-2"},
	}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newTunnelMetrics(func() *snapshot { return s }))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), metricsNamespace+"_tunnel_")
		for _, metric := range family.GetMetric() {
			h := metric.GetHistogram()
			switch {
			case name == "lanes" && metric.GetGauge().GetValue() == 4, name == "requests_waiting" && metric.GetGauge().GetValue() == 7:
				found[name] = true
			case name == "request_duration_seconds":
				found[name] = h.GetSampleCount() == 9 && h.GetSampleSum() == 2.5 && len(h.GetBucket()) == tunnelspec.LatencyBuckets &&
					h.GetBucket()[0].GetUpperBound() == 0.00025 && h.GetBucket()[0].GetCumulativeCount() == 5 && h.GetBucket()[2].GetCumulativeCount() == 8
			case name == "lanes":
				t.Errorf("a tunnel without lanes has the metric %s", metric)
			}
		}
	}
	if len(found) != 3 || !found["request_duration_seconds"] {
		t.Errorf("found %v", found)
	}
}
