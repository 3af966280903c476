package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

// Random batches end equally, whether their operations run one after the other or side by side.
func TestBatchesEndEquallySideBySide(t *testing.T) {
	asRoot(t)
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			serial, serially := playRandomly(t, seed, 1)
			parallel, sideBySide := playRandomly(t, seed, 16)
			if diff := cmp.Diff(serially, sideBySide); diff != "" {
				t.Errorf("results mismatch (-serially +side by side):\n%s", diff)
			}
			if diff := difference(serial.dumpWithoutGIDs(), parallel.dumpWithoutGIDs()); diff != "" {
				t.Errorf("the file systems differ:\n%s", diff)
			}
		})
	}
}

// playRandomly prepares a file system with a few batches, and runs one more with so many workers.
func playRandomly(t *testing.T, seed uint64, workers int) (*fixture, []string) {
	chance := rand.New(rand.NewPCG(seed, 1))
	w := newFixture(t)
	w.workers = 1
	for range 3 {
		w.run(randomBatch(chance)...)
		w.now = w.now.Add(time.Minute)
	}
	for _, p := range []string{"/a/b", "/c/a"} {
		if chance.IntN(2) == 0 { // a person removes retained data
			if err := os.RemoveAll(w.path(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ops := randomBatch(chance)
	w.workers = workers
	f := w.open(func(string) error {
		runtime.Gosched()
		return nil
	})
	defer f.Close()
	report := batch.Run(t.Context(), f, ops, w.options())
	labels := w.gidLabels()
	var results []string
	for i, result := range report.Results {
		gid := labels[result.GID]
		result.GID = 0
		results = append(results, fmt.Sprintf("%s of %s by %s: %+v, gid %s", ops[i].Kind, ops[i].Path, ops[i].Volume, result, gid))
	}
	return w, results
}

// randomBatch has few paths and volumes, so that they meet: above, below and beside each other.
func randomBatch(chance *rand.Rand) []operations.Operation {
	oneIn := func(n int) bool { return chance.IntN(n) == 0 }
	ops := make([]operations.Operation, 40)
	for i := range ops {
		p := ""
		for range 1 + chance.IntN(3) {
			p += "/" + string(rune('a'+chance.IntN(6)))
		}
		o := owner(fmt.Sprint("c", 1+chance.IntN(8)/7), fmt.Sprint("ns", chance.IntN(8)/7), chance.IntN(30))
		o.Class = fmt.Sprint("class", chance.IntN(8)/7)
		switch chance.IntN(6) {
		case 0, 1, 2:
			ops[i] = setupOf(o, p)
			ops[i].AllocateGID = oneIn(2)
			ops[i].ShareAcrossNamespaces, ops[i].ShareAcrossClusters, ops[i].Joins, ops[i].RefuseExisting = oneIn(4), oneIn(4), oneIn(2), oneIn(4)
			ops[i].Adopt = oneIn(8)
		case 3:
			ops[i] = cleanupOf(o, p)
			ops[i].LeaveToOthers, ops[i].KeepDirectory, ops[i].Keep = oneIn(2), oneIn(4), []string{"", "1h", "forever"}[chance.IntN(3)]
		case 4:
			ops[i] = releaseOf(o, p)
		case 5:
			ops[i] = restoreOf(o, p, owner(o.Cluster, o.Namespace, chance.IntN(30)).ClaimUID)
		}
	}
	return ops
}

// gidLabels names allocated gids by what they are for: which number a setup gets depends on which one
// comes first.
func (w *fixture) gidLabels() map[int]string {
	w.t.Helper()
	files, err := filepath.Glob(w.path(".efs-stunnel/gids/*"))
	if err != nil {
		w.t.Fatal(err)
	}
	labels := map[int]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		var a struct{ Volume, Path string }
		gid, numberErr := strconv.Atoi(filepath.Base(file))
		if err := errors.Join(numberErr, json.Unmarshal(data, &a)); err != nil {
			w.t.Fatal(err)
		}
		labels[gid] = fmt.Sprintf("<of %s at %s>", a.Volume, a.Path)
	}
	return labels
}

var numbers = regexp.MustCompile(`(0:|"gid":|gids/)(\d+)`)

// dumpWithoutGIDs is a dump that has labels in place of gids.
func (w *fixture) dumpWithoutGIDs() map[string]string {
	labels := w.gidLabels()
	label := func(s string) string {
		return numbers.ReplaceAllStringFunc(s, func(found string) string {
			parts := numbers.FindStringSubmatch(found)
			gid, err := strconv.Atoi(parts[2])
			if err != nil || labels[gid] == "" {
				return found
			}
			return parts[1] + labels[gid]
		})
	}
	all := map[string]string{}
	for p, line := range w.dump() {
		for all[label(p)] != "" { // two gids for one volume
			p += " again"
		}
		all[label(p)] = label(line)
	}
	return all
}

// Whatever operations were under way when a run died, the next one ends where an undisturbed one does.
func TestCrashSideBySide(t *testing.T) {
	asRoot(t)
	prepared := newFixture(t)
	prepared.workers = 1
	var before, batch []operations.Operation
	for n := range 4 {
		before = append(before, setupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/old/%d/data", n)))
		batch = append(batch,
			cleanupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/old/%d/data", n)),
			allocating(setupOf(owner("c1", "ns", 10+n), fmt.Sprintf("/ns/new/%d/data", n/2*n))))
	}
	batch = append(batch, restoreOf(owner("c1", "ns", 20), "/ns/back", owner("c1", "ns", 3).ClaimUID))
	prepared.done(before...)

	w := prepared.clone()
	steps := 0
	w.runUntil(batch, func(string) error {
		steps++
		return nil
	})
	want := w.dumpWithoutGIDs()
	for n := 0; n < steps; n += 3 { // which one it is differs anyway
		w := prepared.clone()
		w.workers = 16
		w.runUntil(batch, crashAt(n))
		w.gidsOf(batch...)
		if diff := difference(want, w.dumpWithoutGIDs()); diff != "" {
			t.Errorf("after a crash at step %d:\n%s", n, diff)
		}
	}
	t.Logf("%d steps", steps)
}

// runUntil runs a batch as a process that ends at a step.
func (w *fixture) runUntil(ops []operations.Operation, step func(string) error) {
	f := w.open(nil)
	defer f.Close()
	f.Step = step
	batch.Run(context.Background(), f, ops, w.options())
}

// When a range is used up, its gids are reclaimed while no setup is between its gid and its entry.
func TestGIDsAreReclaimedSideBySide(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	const size = 40
	var first, cleanups, second []operations.Operation
	for n := range size {
		add := func(ops *[]operations.Operation, n int, p string) {
			op := allocating(setupOf(owner("c1", "ns", n), p))
			op.GIDMin, op.GIDMax = 3000, 3000+size-1
			*ops = append(*ops, op)
		}
		if n < size-10 {
			add(&first, n, fmt.Sprint("/ns/first-", n))
			cleanups = append(cleanups, cleanupOf(first[n].Owner, first[n].Path))
		}
		add(&second, size+n, fmt.Sprint("/ns/second-", n))
	}
	w.gidsOf(first...)
	w.done(cleanups...)
	w.sweep(0)
	byGID := map[int]string{}
	for i, gid := range w.gidsOf(second...) {
		if byGID[gid] != "" {
			t.Errorf("%s and %s have the gid %d", second[i].Path, byGID[gid], gid)
		}
		byGID[gid] = second[i].Path
	}
	w.wantWholeLedger(byGID)
}

// While others run, the ledger keeps the directories that they may be about to use.
func TestLedgerAboveAPathStaysUntilThePhaseEnds(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	if result := w.begin().Do(t.Context(), cleanupOf(a, "/ns/data")); !isPlainlyDone(result.Result) {
		t.Errorf("got %+v", result)
	}
	w.gone("/.efs-stunnel/owners/ns/data")
	w.there("/.efs-stunnel/owners/ns")
	w.done(setupOf(a, "/ns/data"))
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/.efs-stunnel/owners/ns")
}

// Setups that run side by side make the directories on the way once, and get a gid each.
func TestSetupsSideBySide(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	var ops []operations.Operation
	for n := range 64 {
		ops = append(ops, allocating(setupOf(owner("c1", "ns", n), fmt.Sprintf("/deep/%d/%d/%d", n%2, n%4, n))))
	}
	byGID := map[int]string{}
	for i, gid := range w.gidsOf(ops...) {
		if gid < 2000 || byGID[gid] != "" {
			t.Errorf("%s has the gid %d, and so has %q", ops[i].Path, gid, byGID[gid])
		}
		byGID[gid] = ops[i].Path
		w.there(ops[i].Path)
	}
	w.wantWholeLedger(byGID)
}

func (w *fixture) begin() *batch.Batch {
	w.t.Helper()
	f := w.open(nil)
	w.t.Cleanup(f.Close)
	b, err := batch.Begin(w.t.Context(), f, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(b.End)
	return b
}
