package enginetest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

// BenchmarkSurvey counts a thousand volumes of a thousand files, and says how much memory that needs.
func BenchmarkSurvey(b *testing.B) {
	w := newFixture(b)
	var paths []string
	for i := range 1000 {
		paths = append(paths, fmt.Sprintf("/team/volume-%d", i))
	}
	w.volumes(paths...)
	for _, p := range paths {
		for i := range 1000 {
			if err := os.WriteFile(w.path(fmt.Sprintf("%s/file-%d", p, i)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	f := w.open(nil)
	defer f.Close()
	var peak uint64
	for b.Loop() {
		err := usage.Survey(b.Context(), f, usage.Options{Rate: 1e9, Found: func(operations.Usage) error {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			peak = max(peak, memory.Sys-memory.HeapReleased)
			return nil
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(peak)/(1<<20), "MiB")
}
