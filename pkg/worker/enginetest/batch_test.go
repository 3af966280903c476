package enginetest

import (
	"fmt"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

// One bad operation fails for itself.
func TestBadOperationFailsAlone(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	results := w.run(setupOf(a, "/ns/a"), setupOf(a, "/../a"), setupOf(b, "/ns/a/b"), setupOf(b, "/ns/b"))
	for i, want := range []operations.State{operations.Done, operations.Failed, operations.Failed, operations.Done} {
		if results[i].State != want {
			t.Errorf("operation %d: %+v", i, results[i])
		}
	}
}

func TestEmptyBatchSucceeds(t *testing.T) {
	f := newFixture(t).open(nil)
	defer f.Close()
	if report := batch.Run(t.Context(), f, nil, batch.Options{}); !report.Succeeded() || len(report.Results) != 0 {
		t.Errorf("got %+v", report)
	}
}

// A full Job of claims, on a file system that has many volumes.
func BenchmarkSetup(b *testing.B) {
	for _, existing := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("%d existing", existing), func(b *testing.B) {
			w := newFixture(b)
			for n := range existing {
				p := fmt.Sprintf("ns/claim-%d", n)
				w.write(".efs-stunnel/owners/"+p+"/@pvc-"+fmt.Sprint(n), `{"cluster":"c1","namespace":"ns"}`)
				w.write(".efs-stunnel/gids/"+fmt.Sprint(2000+n), `{}`)
			}
			round := 0
			for b.Loop() {
				round++
				var ops []operations.Operation
				for n := range 512 {
					ops = append(ops, allocating(setupOf(owner("c1", fmt.Sprint("r", round), n), fmt.Sprintf("/ns/r%d-%d", round, n))))
				}
				w.gidsOf(ops...)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(512*b.N), "us/claim")
		})
	}
}
