package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// steps records the steps of a run.
type steps struct{ names []string }

func (s *steps) hook(step string) error {
	s.names = append(s.names, step)
	return nil
}

func (s *steps) count(prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(s.names), func(step string) bool { return !strings.HasPrefix(step, prefix) }))
}

func (s *steps) first(prefix string) int {
	return slices.IndexFunc(s.names, func(step string) bool { return strings.HasPrefix(step, prefix) })
}

const readingRecords = "read record "

// sweepWith sweeps at a time of the server's clock.
func (w *fixture) sweepWith(ctx context.Context, step func(string) error, now time.Time) (operations.Swept, error) {
	w.t.Helper()
	f := w.open(step) //nolint:contextcheck // it is that of the test
	defer f.Close()
	f.ServerTime = func() time.Time { return now }
	return trash.Sweep(ctx, f, treewalk.Options{Workers: 1})
}

func (w *fixture) inTrash(slot string) bool {
	_, err := os.Lstat(w.path(w.slot(slot)))
	return err == nil
}

// fill makes volumes and deletes them.
func (w *fixture) fill(keep string, from, to int) {
	w.t.Helper()
	var setups, cleanups []operations.Operation
	for n := from; n < to; n++ {
		op := cleanupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/%d", n))
		op.Keep = keep
		setups, cleanups = append(setups, setupOf(op.Owner, op.Path)), append(cleanups, op)
	}
	w.done(setups...)
	w.done(cleanups...)
}

// plant puts a directory into the trash itself, as a cleanup on a full server does, with a record.
func (w *fixture) plant(slot, keep string, due time.Time) {
	w.t.Helper()
	w.write("/.efs-stunnel/trash/"+slot+"/file", "x")
	w.write("/.efs-stunnel/trash/@"+slot, fmt.Sprintf(
		`{"owner":{"cluster":"c1","namespace":"ns","claim":"c","claimUID":"uid-%s","when":"2026-01-01T00:00:00Z"},"volume":%q,"path":"/ns/%s","keep":%q,"due":%q}`,
		slot, slot, slot, keep, due.UTC().Format(time.RFC3339)))
}

// A directory is kept by the server's clock, which is years from this node's.
func TestTrashIsKeptByTheServersClock(t *testing.T) {
	const days = 24 * time.Hour
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	op := cleanupOf(a, "/ns/data")
	op.Keep = "72h"
	w.done(op)
	for _, tt := range []struct {
		after time.Duration
		there bool
	}{{0, true}, {3*days - 1, true}, {3*days + 3*days/100, false}} {
		w.sweep(tt.after)
		if w.inTrash(a.Volume) != tt.there {
			t.Errorf("after %s: in the trash is %t", tt.after, !tt.there)
		}
	}
}

// TestOwnersAreDatedByTheServersClock because a rebuild prefers the later one of two.
func TestOwnersAreDatedByTheServersClock(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	dated := func(p string, of operations.Owner) {
		t.Helper()
		var e ledger.Entry
		data, err := os.ReadFile(w.path("/.efs-stunnel/owners" + p + "/@" + of.Volume))
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err != nil || !e.When.Equal(w.now) {
			t.Errorf("the owner of %s is of %s, and the server's time %s: %v", p, e.When, w.now, err)
		}
	}
	w.done(setupOf(a, "/ns/data"))
	dated("/ns/data", a)
	w.done(cleanupOf(a, "/ns/data"))
	w.now = w.now.Add(time.Hour)
	w.done(restoreOf(b, "/ns/back", a.ClaimUID))
	dated("/ns/back", b)
}

func TestServerTimeIsReadFromTheStateDirectory(t *testing.T) {
	w := newFixture(t)
	f := w.open(nil)
	defer f.Close()
	f.ServerTime = nil // the file system itself is asked
	long := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(w.path("/.efs-stunnel"), long, long); err != nil {
		t.Fatal(err)
	}
	const tick = time.Second // file systems count in ticks
	before := time.Now().Add(-tick)
	said, err := f.ServerNow(t.Context())
	if err != nil || said.Before(before) || said.After(time.Now().Add(tick)) {
		t.Errorf("%s, %v", said, err)
	}
}

// Records that were cut off, or are a newer version's, protect their directories.
func TestRecordsThatCannotBeReadProtect(t *testing.T) {
	w := newFixture(t)
	long := w.now.Add(-1000 * time.Hour)
	for slot, record := range map[string]string{
		"torn":  `{"owner":{"cluster":"c1","namespace":"n`,
		"empty": "",
		"newer": `{"owner":{"cluster":"c1","when":"2026-01-01T00:00:00Z"},"volume":"newer","keep":"until the audit"}`,
		"other": `[1,2,3]`,
		"undue": `{"owner":{"cluster":"c1","when":"2026-01-01T00:00:00Z"},"volume":"undue"}`,
	} {
		w.plant(slot, "0", long)
		w.write("/.efs-stunnel/trash/@"+slot, record)
	}
	w.plant("due", "0", long)
	for range 2 {
		swept := w.sweep(0)
		if swept.Kept != 5 || swept.Unknown != 5 || w.inTrash("due") {
			t.Errorf("%+v", swept)
		}
		w.there("/.efs-stunnel/trash/torn/file", "/.efs-stunnel/trash/empty/file", "/.efs-stunnel/trash/newer/file", "/.efs-stunnel/trash/other/file", "/.efs-stunnel/trash/undue/file")
	}
}

// What a sweep removes next is in the name of its bucket.
func TestTrashIsSortedByTheTimeWhenItIsDue(t *testing.T) {
	w := newFixture(t)
	for n, keep := range []string{"", "1h", "forever"} {
		w.fill(keep, n, n+1)
	}
	w.sweep(0)
	var found []string
	for _, pattern := range []string{"*", "*/pvc-*"} {
		all, err := filepath.Glob(w.path("/.efs-stunnel/trash/" + pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range all {
			found = append(found, strings.TrimPrefix(at, w.path("/.efs-stunnel/trash")+"/"))
		}
	}
	if want := []string{"20260102T040412Z", "@@sweeping", "NEVER", "20260102T040412Z/pvc-c1-ns-1", "NEVER/pvc-c1-ns-2"}; !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
	w.sweep(2 * time.Hour)
	w.gone("/.efs-stunnel/trash/20260102T040412Z")
}

// A second run finds what the first one has moved, though it is due at another time by now.
func TestCleanupIsRepeatedInItsBucket(t *testing.T) {
	for _, step := range []string{"rename ", "write /.efs-stunnel/trash", "trash /ns/data", "remove /.efs-stunnel/owners"} {
		t.Run(step, func(t *testing.T) {
			w := newFixture(t)
			a := owner("c1", "ns", 1)
			w.done(setupOf(a, "/ns/data"))
			w.write("/ns/data/file", "x")
			op := cleanupOf(a, "/ns/data")
			op.Keep = "1h"
			f := w.open(func(got string) error {
				if strings.HasPrefix(got, step) && (step != "rename " || strings.HasSuffix(got, ".leaving")) {
					return errCrash
				}
				return nil
			})
			batch.Run(t.Context(), f, []operations.Operation{op}, batch.Options{})
			f.Close()
			w.now = w.now.Add(10 * time.Minute)
			w.done(op)
			found, err := filepath.Glob(w.path("/.efs-stunnel/trash/*/*pvc-*"))
			if err != nil || len(found) != 2 {
				t.Errorf("the trash has %q, %v", found, err)
			}
			w.there(w.slot(a.Volume) + "/file")
			w.gone("/ns/data", "/.efs-stunnel/owners/ns")
			w.done(op) // its report was lost
			if w.sweep(2 * time.Hour); w.inTrash(a.Volume) {
				t.Error("it is not removed")
			}
			w.wantEmptyTrash()
		})
	}
}

// On a full server a deletion is done all the same, keeps what is to be kept, and frees space.
func TestCleanupOnAFullServer(t *testing.T) {
	for _, tt := range []struct {
		keep  string
		after time.Duration
		there bool
	}{
		{"", 0, false},
		{"1h", time.Hour - 1, true},
		{"1h", time.Hour, false},
		{"forever", 10000 * time.Hour, true},
	} {
		w := newFixture(t)
		a := owner("c1", "ns", 1)
		w.sweep(0)
		w.done(setupOf(a, "/ns/data"))
		w.write("/ns/data/file", "x")
		op := cleanupOf(a, "/ns/data")
		op.Keep = tt.keep
		w.full = true
		w.done(op)
		w.gone("/ns/data", "/.efs-stunnel/owners/ns")
		w.done(op) // its first report was lost
		if swept := w.sweep(tt.after); w.inTrash(a.Volume) != tt.there || swept.Unknown != 0 {
			t.Errorf("kept for %q, after %s: there is %t, %+v", tt.keep, tt.after, !tt.there, swept)
		}
		if !tt.there {
			continue
		}
		w.full = false
		w.done(restoreOf(owner("c1", "ns", 2), "/ns/back", a.ClaimUID))
		w.there("/ns/back/file")
		w.do(restoreOf(owner("c1", "ns", 3), "/ns/again", a.ClaimUID), operations.Failed, operations.NothingToRestore)
	}
}
