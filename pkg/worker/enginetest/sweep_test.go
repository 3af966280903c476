package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

func TestSweepHonoursTheTimeToKeep(t *testing.T) {
	w := newFixture(t)
	var ops, cleanups []operations.Operation
	for n, keep := range []string{"", "0", "1h", "48h", "forever"} {
		op := cleanupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/%d", n))
		op.Keep = keep
		ops, cleanups = append(ops, setupOf(op.Owner, op.Path)), append(cleanups, op)
	}
	w.done(ops...)
	for n := range ops {
		w.write(fmt.Sprintf("/ns/%d/file", n), "x")
	}
	w.done(cleanups...)
	w.write("/.efs-stunnel/trash/unknown/file", "without a record")

	left := func() (names []string) {
		for n := range ops {
			if _, err := os.Stat(w.path(w.slot("pvc-c1-ns-" + fmt.Sprint(n)))); err == nil {
				names = append(names, fmt.Sprint(n))
			}
		}
		return names
	}
	for _, tt := range []struct {
		after   time.Duration
		want    string
		volumes int
		next    time.Time
	}{
		{0, "2,3,4", 2, w.now.Add(time.Hour)},
		{time.Hour - 1, "2,3,4", 0, w.now.Add(time.Hour)},
		{time.Hour + time.Hour/100, "3,4", 1, w.now.Add(48 * time.Hour)},
		{1000 * time.Hour, "4", 1, time.Time{}},
	} {
		swept := w.sweep(tt.after)
		if got := strings.Join(left(), ","); got != tt.want {
			t.Errorf("after %v: left %s, want %s", tt.after, got, tt.want)
		}
		if swept.Volumes != tt.volumes || !isSoonAfter(swept.Next, tt.next) || swept.Removed != int64(2*tt.volumes) {
			t.Errorf("after %v: %+v, want %d volumes and the next at %v", tt.after, swept, tt.volumes, tt.next)
		}
	}
	w.there("/.efs-stunnel/trash/unknown/file", w.slot("pvc-c1-ns-4")+"/file")
}

// isSoonAfter allows for what the index rounds up.
func isSoonAfter(got, want time.Time) bool {
	return want.IsZero() && got.IsZero() || !got.Before(want) && got.Sub(want) <= time.Hour
}

// Between the listing and the lock, a slot can be emptied and filled again.
func TestSweepReadsRecordsAgainUnderTheLock(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.done(cleanupOf(a, "/ns/data"))
	record := w.path("/.efs-stunnel/trash/@" + a.Volume)
	f := w.open(func(step string) error {
		if step != "read record "+strings.TrimPrefix(record, w.dir) {
			return nil
		}
		text, err := os.ReadFile(record)
		if err != nil {
			return err
		}
		return os.WriteFile(record, bytes.Replace(text, []byte(`"deleted"`), []byte(`"keep":"forever","deleted"`), 1), 0o600)
	})
	defer f.Close()
	if swept, err := trash.Sweep(t.Context(), f, treewalk.Options{}); err != nil || swept.Kept != 1 {
		t.Fatal(swept, err)
	}
	w.there("/.efs-stunnel/trash/" + a.Volume)
}

// plant makes a tree of directories with files, and counts what is in it.
func plant(t testing.TB, dir string, directories, files int) (count int64) {
	t.Helper()
	for d := range directories {
		sub := filepath.Join(dir, fmt.Sprintf("%d", d%7), fmt.Sprint(d))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range files {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(f)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := filepath.WalkDir(dir, func(string, os.DirEntry, error) error {
		count++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestSweepCountsAndReportsProgress(t *testing.T) {
	for _, workers := range []int{1, 3, 64} {
		w := newFixture(t)
		a := owner("c1", "ns", 1)
		w.done(setupOf(a, "/ns/data"))
		want := plant(t, w.path("/ns/data"), 30, 10)
		plant(t, w.path("/ns/data/flat"), 1, 3*256)
		want += 3*256 + 3
		w.done(cleanupOf(a, "/ns/data"))
		f := w.open(nil)
		var reported []int64
		swept, err := trash.Sweep(t.Context(), f, treewalk.Options{Workers: workers, Progress: func(s operations.Swept) {
			reported = append(reported, s.Removed)
		}})
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if swept.Removed != want || swept.Volumes != 1 {
			t.Errorf("%d workers: %+v, want %d removals", workers, swept, want)
		}
		if len(reported) != int(want)+1 || reported[0] != 1 || reported[len(reported)-1] != want { // the last one at the end
			t.Errorf("%d workers reported %v of %d", workers, reported, want)
		}
		w.wantEmptyTrash()
	}
}

// A sweep that is stopped anywhere is gone on with by the next.
func TestSweepIsResumed(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	want := plant(t, w.path("/ns/data"), 40, 5)
	w.done(cleanupOf(a, "/ns/data"))
	var removed int64
	for stops := int64(1); ; stops++ {
		ctx, stop := context.WithCancel(t.Context())
		f := w.open(nil)
		swept, err := trash.Sweep(ctx, f, treewalk.Options{Workers: 2, Progress: func(s operations.Swept) {
			if s.Removed == 17 {
				stop()
			}
		}})
		f.Close()
		stop()
		removed += swept.Removed
		if err == nil || swept.Removed == 0 {
			break
		}
		if !errors.Is(err, context.Canceled) || !fsroot.IsStop(err) {
			t.Fatal(err)
		}
		if stops > want {
			t.Fatal("it never ends")
		}
	}
	if removed != want {
		t.Errorf("%d were removed, want %d", removed, want)
	}
	w.sweep(0)
	w.wantEmptyTrash()
}

// A tenant can make a tree deeper than any path is long.
func TestSweepOfADeepTree(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	const depth = 1200
	root, err := os.OpenRoot(w.path("/ns/data"))
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := root.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		deeper, err := root.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		root = deeper
	}
	if err := root.Close(); err != nil {
		t.Fatal(err)
	}
	w.done(cleanupOf(a, "/ns/data"))
	handles := 0
	f := w.open(func(string) error {
		open, _ := os.ReadDir("/proc/self/fd")
		handles = max(handles, len(open))
		return nil
	})
	defer f.Close()
	swept, err := trash.Sweep(t.Context(), f, treewalk.Options{Workers: 1})
	if err != nil || swept.Removed != depth+1 {
		t.Errorf("%+v, %v", swept, err)
	}
	if handles > 200 {
		t.Errorf("%d handles were open", handles)
	}
	w.wantEmptyTrash()
}

// A tenant that still writes into a tree that is removed must not keep the sweep for ever.
func TestSweepAgainstAWriter(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	plant(t, w.path("/ns/data"), 5, 5)
	tenant, err := os.OpenRoot(w.path("/ns/data"))
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	w.done(cleanupOf(a, "/ns/data"))
	var n atomic.Int64
	f := w.open(func(step string) error {
		if strings.HasPrefix(step, "sweep ") { // every look finds something new
			_ = tenant.Mkdir(fmt.Sprint("new", n.Add(1)), 0o755)
		}
		return nil
	})
	_, err = trash.Sweep(t.Context(), f, treewalk.Options{Workers: 2})
	f.Close()
	t.Logf("%d looks, %v", n.Load(), err)
	w.sweep(0)
	w.wantEmptyTrash()
}

func BenchmarkSweep(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newFixture(b)
		a := owner("c1", "ns", 1)
		w.done(setupOf(a, "/ns/data"))
		plant(b, w.path("/ns/data"), 200, 50)
		w.done(cleanupOf(a, "/ns/data"))
		b.StartTimer()
		w.sweep(0)
	}
}

func BenchmarkRemoveAll(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		plant(b, filepath.Join(dir, "data"), 200, 50)
		b.StartTimer()
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			b.Fatal(err)
		}
	}
}
