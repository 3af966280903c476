package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const metricSource = `package p

const prefix, size = "efs_stunnel_manager_", "size_bytes"

const total = "calls_total"

var labels = []string{"zone"}

var (
	_ = prometheus.NewDesc("efs_stunnel_volume_files", "Files, of one.", labels, nil)
	_ = prometheus.NewDesc(namespace+"_forbidden", "Refused.", []string{"verb", "group"}, nil)
	_ = factory.NewHistogramVec(prometheus.HistogramOpts{Namespace: n, Name: "batch_operations", Help: "Operations.", Buckets: b(1, 2)}, []string{"way"})
	_ = factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": v}}, f)
	_ = []struct{ name, help string }{{total, "Calls."}}
	_ = desc("call_duration_seconds", "Time.", "tunnel")
	_ = prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	_ = fmt.Sprintf("not_a_metric %s", "A sentence.")
)
`

func TestMetricsAreReadFromTheSource(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", metricSource, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []metric{
		{"efs_stunnel_volume_files", "gauge", "Files, of one.", []string{"zone"}},
		{"forbidden", "gauge", "Refused.", []string{"verb", "group"}},
		{"batch_operations", "histogram", "Operations.", []string{"way"}},
		{"build_info", "gauge", "Always 1.", []string{"version"}},
		{"calls_total", "counter", "Calls.", nil},
		{"call_duration_seconds", "histogram", "Time.", []string{"tunnel"}},
	}
	if diff := cmp.Diff(want, metricsOf(file), cmp.AllowUnexported(metric{})); diff != "" {
		t.Errorf("metrics mismatch (-want +got):\n%s", diff)
	}
}
