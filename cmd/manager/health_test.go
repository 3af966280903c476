package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// get sends a request as kubelet does.
func (w *replica) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	httpserver.Handler(w.http()).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestEndingIsNotReady(t *testing.T) {
	w := newReplica(t, nil)
	w.ending.Store(true)
	if code, body := w.get(t, "/readyz"); code != 503 || !strings.Contains(body, "[-] start: the manager is ending") {
		t.Errorf("got %d and\n%s", code, body)
	}
}

func TestMetrics(t *testing.T) {
	w := newReplica(t, nil)
	w.metrics.observeCall("DescribeFileSystems", "ThrottlingException", time.Second)
	w.program.CountDropped("Forbidden")
	_, body := w.get(t, "/metrics")
	for _, want := range []string{
		"efs_stunnel_manager_leading 0",
		`efs_stunnel_manager_build_info{go_version="go`,
		`efs_stunnel_manager_aws_api_calls_total{operation="DescribeFileSystems",result="ThrottlingException"} 1`,
		`efs_stunnel_manager_aws_api_call_duration_seconds_count{operation="DescribeFileSystems"} 1`,
		`efs_stunnel_manager_events_dropped_total{reason="Forbidden"} 1`,
		"go_goroutines ",
		"process_cpu_seconds_total ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// TestHealthMakesNoMetricsOfClaims: there can be a hundred thousand, and a probe comes every 10 s.
func TestHealthMakesNoMetricsOfClaims(t *testing.T) {
	w := newReplica(t, nil)
	w.program.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "of_a_claim"}, func() float64 {
		t.Error("it was made")
		return 0
	}))
	if code, body := w.get(t, "/healthz"); code != http.StatusOK || !strings.Contains(body, "[+] syncs") {
		t.Errorf("got %d and\n%s", code, body)
	}
}

func TestCheckSyncs(t *testing.T) {
	registry := prometheus.NewRegistry()
	longest := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_longest_running_processor_seconds"}, []string{"name"})
	registry.MustRegister(longest)
	longest.WithLabelValues("claims").Set(0)
	longest.WithLabelValues("jobs").Set(600)
	if err := checkSyncs(registry); err != nil {
		t.Errorf("10 minutes are too long: %v", err)
	}
	longest.WithLabelValues("jobs").Set(601)
	if err := checkSyncs(registry); err == nil || err.Error() != "a sync of loop jobs takes 10m1s, which is more than 10m0s" {
		t.Errorf("got %v", err)
	}
}
