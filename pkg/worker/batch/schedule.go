package batch

import (
	"cmp"
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// run does phases one after the other, the sets of each side by side, and the operations of a set in order.
func (b *Batch) run(ctx context.Context, ops []operations.Operation, options Options) []operations.Result {
	results := make([]operations.Result, len(ops))
	var mu sync.Mutex
	do := func(i int) {
		start := time.Now()
		ended := b.Do(ctx, ops[i])
		mu.Lock()
		defer mu.Unlock()
		results[i] = ended.Result
		options.Ended.report(ops[i], ended, time.Since(start))
	}
	for _, phase := range phases(ops) {
		b.beginPhase(ctx)
		all := context.WithoutCancel(ctx) // each operation needs its result
		_ = fsroot.InParallel(all, cmp.Or(options.Workers, defaultWorkers), len(phase), func(n int) error {
			for _, i := range phase[n] {
				do(i)
			}
			return nil
		})
		b.pruneLedger(ctx, ops, slices.Concat(phase...), results, options.Ended)
	}
	return results
}

// pruneLedger removes what a phase has left empty in the ledger. Where it cannot, it has the operations repeated.
func (b *Batch) pruneLedger(ctx context.Context, ops []operations.Operation, positions []int, results []operations.Result, ended Observer) {
	for _, p := range b.Ledger.TakeUnpruned() {
		err := b.Ledger.Prune(ctx, p, "/")
		if err == nil {
			continue
		}
		b.forget(true)
		for _, i := range positions {
			isRelated := fsroot.IsAtOrBelow(ops[i].Path, p) || fsroot.IsAtOrBelow(p, ops[i].Path)
			if isRelated && results[i].State == operations.Done {
				results[i] = fsroot.ResultOf(err)
				ended.report(ops[i], OutcomeOf(err), 0)
			}
		}
	}
}

// kinds are the kinds of operations in the order in which they are done.
var kinds = [...]operations.Kind{operations.Release, operations.Cleanup, operations.Clone, operations.Setup, operations.Restore}

// phases gives the positions of the operations as sets, by phase. A path is left before it is taken, and owners that
// are only remembered go before what they block, so each kind is a phase. From the first restore on, all operations are
// one set of the last one: a restore takes what any operation before it may have put into the trash. Setups do not wait
// for that, but for those of a path that a restore wants too: it needs the path empty, and they join it.
func phases(ops []operations.Operation) (all [][][]int) {
	restored := map[string]bool{}
	for _, op := range ops {
		restored[op.Path] = restored[op.Path] || op.Kind == operations.Restore
	}
	byRank := map[int][]int{}
	for i, op := range ops {
		rank := slices.Index(kinds[:], op.Kind)
		if op.Kind == operations.Setup && restored[op.Path] {
			rank = len(kinds)
		}
		byRank[rank] = append(byRank[rank], i)
	}
	restore := slices.Index(kinds[:], operations.Restore)
	for rank := -1; rank < restore; rank++ { // -1 are the operations of unknown kinds, which are refused
		if positions := byRank[rank]; len(positions) > 0 {
			all = append(all, independentSets(ops, positions))
		}
	}
	if last := slices.Concat(byRank[restore], byRank[restore+1]); len(last) > 0 {
		all = append(all, [][]int{last})
	}
	return all
}

// independentSets splits operations of one kind, so that those of different sets use neither the same
// directory nor the same part of the ledger or the trash. Operations whose paths are equal, or one above
// the other, are in one set, and so are those of a volume, whose name is that of its slot in the trash.
// Sets, and the operations in them, stay in the order of the batch.
func independentSets(ops []operations.Operation, positions []int) (sets [][]int) {
	joined := join{}
	paths := map[string]bool{}
	for _, i := range positions {
		paths[ops[i].Path] = true
	}
	for _, i := range positions {
		joined.join("volume "+ops[i].Volume, ops[i].Path)
		if operations.CheckPath(ops[i].Path) != nil {
			continue // it is refused
		}
		for above := path.Dir(ops[i].Path); above != "/"; above = path.Dir(above) {
			if paths[above] {
				joined.join(ops[i].Path, above)
			}
		}
	}
	positionOf := map[string]int{} // in sets
	for _, i := range positions {
		of := joined.first(ops[i].Path)
		n, ok := positionOf[of]
		if !ok {
			n = len(sets)
			positionOf[of], sets = n, append(sets, nil)
		}
		sets[n] = append(sets[n], i)
	}
	return sets
}

// join is a partition of paths and volumes. It has another member of the same set for each, but for one of a set.
type join map[string]string

func (j join) first(key string) string {
	for next, ok := j[key]; ok; next, ok = j[key] {
		key = next
	}
	return key
}

func (j join) join(a, b string) {
	if a, b = j.first(a), j.first(b); a != b {
		j[a] = b
	}
}
