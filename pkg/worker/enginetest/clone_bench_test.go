package enginetest

import (
	"fmt"
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
)

// BenchmarkClone copies small files from a server with a round trip of 5 ms: all at once, and one after the
// other, as cp does. It says how many it copies in a second.
func BenchmarkClone(b *testing.B) {
	for name, workers := range map[string]int{"one by one": 1, "at once": 64} {
		b.Run(name, func(b *testing.B) {
			const folders, files = 20, 25
			w := newFixture(b)
			w.done(setupOf(owner("c1", "ns", 1), sourcePath))
			for i := range folders {
				for j := range files {
					w.write(fmt.Sprintf("%s/%d/%d", sourcePath, i, j), "small")
				}
			}
			f := w.open(nil)
			defer f.Close()
			withLatency(f)
			n := 0
			for b.Loop() {
				op := theClone()
				n++
				op.Path = fmt.Sprintf("%s-%d", clonePath, n)
				op.Owner = owner("c1", "ns", 1+n)
				if result := clone.Clone(b.Context(), f, op, clone.Options{Workers: workers}); result.State != operations.Done {
					b.Fatalf("%+v", result)
				}
				if err := os.RemoveAll(w.path(op.Path)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(folders*files*float64(b.N)/b.Elapsed().Seconds(), "files/s")
		})
	}
}
