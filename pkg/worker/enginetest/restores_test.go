package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

// Restores of unknown uids cost one listing together, and no setup of another path waits for it.
func TestRestoresOfUnknownUIDs(t *testing.T) {
	w := newFixture(t)
	for n := range 300 {
		w.plant(fmt.Sprintf("pvc-01234567-89ab-cdef-0123-%012d", n), "forever", w.now)
	}
	for n := range 5 {
		w.plant(fmt.Sprintf("original-%d", n), "forever", w.now)
	}
	var ops []operations.Operation
	for n := range 1000 {
		ops = append(ops, restoreOf(owner("c1", "evil", n), fmt.Sprintf("/evil/%d", n), fmt.Sprintf("unknown-%d", n)))
	}
	ops = append(ops, restoreOf(owner("c1", "ns", 1), "/ns/back", "uid-original-3"), setupOf(owner("c1", "ns", 2), "/ns/data"))
	var all steps
	f := w.open(all.hook)
	defer f.Close()
	results := batch.Run(t.Context(), f, ops, batch.Options{}).Results
	for i, result := range results {
		if refused := i < 1000; refused != (result.Reason == operations.NothingToRestore) || !refused && result.State != operations.Done {
			t.Fatalf("operation %d: %+v", i, result)
		}
	}
	w.there("/ns/data", "/ns/back/file")
	if lists, reads := all.count("list /.efs-stunnel/trash"), all.count(readingRecords); lists != 1 || reads > 6 {
		t.Errorf("%d listings and %d reads", lists, reads)
	}
	if made, listed := all.first("place /ns/data"), all.first("list /.efs-stunnel/trash"); made > listed {
		t.Errorf("the setup is done at step %d, after the trash is listed at %d", made, listed)
	}
}

func TestRestoreStopsAtTheDeadline(t *testing.T) {
	w := newFixture(t)
	for n := range 50 {
		w.plant(fmt.Sprintf("original-%d", n), "forever", w.now)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all steps
	f := w.open(func(step string) error {
		if strings.HasPrefix(step, readingRecords) {
			stop()
			return errors.Join(errCrash, all.hook(step))
		}
		return nil
	})
	defer f.Close()
	result := batch.Run(ctx, f, []operations.Operation{restoreOf(owner("c1", "ns", 1), "/ns/back", "uid-original-3")}, batch.Options{}).Results[0]
	if result.State != operations.NotDone || result.Reason != operations.Stopped {
		t.Errorf("%+v", result)
	}
	w.gone("/ns/back")
}
