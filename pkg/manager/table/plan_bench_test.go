package table

import (
	"fmt"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Every change of a volume that matters costs one plan.
func BenchmarkPlan(b *testing.B) {
	targets, roots := map[string]ports.Target{}, map[string]int{}
	for i := range 50 {
		id := fmt.Sprintf("fs-%03d", i)
		targets[id], roots[id] = target(20490+i), 20490+i
	}
	s := given(tableOf(targets), rooted(roots))
	for i := range 10000 {
		with(claimed(fmt.Sprintf("pvc-%05d", i), fmt.Sprintf("fs-%03d", i%50), 20490+i%50))(&s)
	}
	o := options()
	o.Range.Count = 1000
	for b.Loop() {
		if p := s.plan(o); p.write || len(p.roots) > 0 {
			b.Fatal("there is something to write")
		}
	}
}
