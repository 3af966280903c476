package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// Several Jobs of two clusters work on one tree at once, with a sweep beside them. Afterwards
// every volume has the gid and the directory of its result, which no other one has.
func TestConcurrentJobsKeepTheirDirectories(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	gids := make([]map[string]int, 4) // by path, of each Job
	var jobs sync.WaitGroup
	for job := range gids {
		gids[job] = map[string]int{}
		jobs.Go(func() { w.work(job, gids[job]) })
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				w.sweepQuietly()
			}
		}
	}()
	jobs.Wait()
	close(stop)
	<-stopped
	w.sweepQuietly()

	byGID := map[int]string{}
	for _, mine := range gids {
		for p, gid := range mine {
			w.there(p)
			if other, taken := byGID[gid]; taken {
				t.Errorf("%s and %s have the gid %d", p, other, gid)
			}
			byGID[gid] = p
			if info, err := os.Stat(w.path(p)); err != nil || fsroot.GroupOf(info) != gid {
				t.Errorf("the result of %s has the gid %d, but it is %v (%v)", p, gid, info, err)
			}
		}
	}
	w.wantWholeLedger(byGID)
	w.wantEmptyTrash()
}

// work sets volumes up and cleans some of them, in batches of its own.
func (w *fixture) work(job int, gids map[string]int) {
	chance := rand.New(rand.NewPCG(uint64(job), 7))
	cluster := fmt.Sprintf("c%d", job%2)
	for round := range 6 {
		var ops []operations.Operation
		for p := range gids {
			if chance.IntN(3) == 0 {
				ops = append(ops, cleanupOf(ownerAt(cluster, p), p))
			}
		}
		for n := range 4 {
			p := fmt.Sprintf("/shared/j%d/r%d-%d", job, round, n)
			ops = append(ops, allocating(setupOf(ownerAt(cluster, p), p)))
		}
		f := w.open(nil)
		for i, result := range batch.Run(context.Background(), f, ops, batch.Options{}).Results {
			if result.State != operations.Done {
				w.t.Errorf("job %d: %s of %s: %+v", job, ops[i].Kind, ops[i].Path, result)
			}
			if ops[i].Kind == operations.Cleanup {
				delete(gids, ops[i].Path)
			} else {
				gids[ops[i].Path] = result.GID
			}
		}
		f.Close()
	}
}

func ownerAt(cluster, p string) operations.Owner {
	name := strings.ReplaceAll(p[1:], "/", "-")
	return operations.Owner{Volume: "pvc-" + name, Cluster: cluster, Namespace: "ns", Claim: name, ClaimUID: name}
}

func (w *fixture) sweepQuietly() {
	f := w.open(nil)
	defer f.Close()
	if _, err := trash.Sweep(context.Background(), f, treewalk.Options{Workers: 4}); err != nil {
		w.t.Error(err)
	}
}

// wantWholeLedger wants exactly the owners of these paths, and nothing half-made.
func (w *fixture) wantWholeLedger(byGID map[int]string) {
	w.t.Helper()
	owners := map[string]bool{}
	base := w.path(".efs-stunnel/owners")
	err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		e := &ledger.Entry{}
		if err := json.Unmarshal(data, e); err != nil {
			return err
		}
		at := strings.TrimPrefix(filepath.Dir(p), base)
		if byGID[e.GID] != at {
			w.t.Errorf("%s has an owner with the gid %d", at, e.GID)
		}
		owners[at] = true
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(owners) != len(byGID) {
		w.t.Errorf("%d paths have owners, want %d", len(owners), len(byGID))
	}
}

// The first claim on a path wins, whoever else asks at the same moment.
func TestFirstNamespaceGetsAPath(t *testing.T) {
	w := newFixture(t)
	const rivals = 6
	results := make([]operations.Result, rivals)
	var jobs sync.WaitGroup
	for n := range rivals {
		jobs.Go(func() {
			f := w.open(nil)
			defer f.Close()
			o := owner("c1", fmt.Sprintf("ns%d", n), 1)
			results[n] = batch.Run(t.Context(), f, []operations.Operation{setupOf(o, "/wanted")}, batch.Options{}).Results[0]
		})
	}
	jobs.Wait()
	won := 0
	for _, result := range results {
		switch {
		case result.State == operations.Done:
			won++
		case result.Reason != operations.OwnedByOtherNamespace:
			t.Errorf("got %+v", result)
		}
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
}

// A restore and a sweep want the same directory: either it comes back whole, or it is gone.
func TestRestoreAgainstSweep(t *testing.T) {
	for n := range 12 {
		w := newFixture(t)
		a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
		w.done(setupOf(a, "/ns/data"))
		files := plant(t, w.path("/ns/data"), 10, 5)
		w.done(cleanupOf(a, "/ns/data"))
		w.now = w.now.Add(time.Minute)
		var both sync.WaitGroup
		both.Go(w.sweepQuietly)
		var result operations.Result
		both.Go(func() {
			f := w.open(nil)
			defer f.Close()
			result = batch.Run(t.Context(), f, []operations.Operation{restoreOf(b, "/ns/back", a.ClaimUID)}, batch.Options{}).Results[0]
		})
		both.Wait()
		switch {
		case result.State == operations.Done:
			var left int64
			_ = filepath.WalkDir(w.path("/ns/back"), func(string, fs.DirEntry, error) error {
				left++
				return nil
			})
			if left != files {
				t.Errorf("try %d: %d of %d came back", n, left, files)
			}
		case result.Reason == operations.NothingToRestore:
			w.gone("/ns/back")
		default:
			t.Errorf("try %d: %+v", n, result)
		}
		w.wantEmptyTrash()
	}
}
