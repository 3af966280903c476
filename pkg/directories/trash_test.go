package directories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// steps counts the steps of a run by their first word and the directory that they are in.
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

const readingRecords = "read /.efs-stunnel/trash/@"

// sweepWith sweeps at a time of the server's clock.
func (w *world) sweepWith(ctx context.Context, step func(string) error, now time.Time) (Swept, error) {
	w.t.Helper()
	f := w.open(step)
	defer f.Close()
	f.serverTime = func() time.Time { return now }
	return f.Sweep(ctx, SweepOptions{Workers: 1})
}

func (w *world) inTrash(slot string) bool {
	_, err := os.Lstat(w.path("/.efs-stunnel/trash/" + slot))
	return err == nil
}

// fill makes volumes and deletes them.
func (w *world) fill(keep string, from, to int) {
	w.t.Helper()
	var setups, cleanups []Operation
	for n := from; n < to; n++ {
		op := cleanupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/%d", n))
		op.Keep = keep
		setups, cleanups = append(setups, setupOf(op.Owner, op.Path)), append(cleanups, op)
	}
	w.done(setups...)
	w.done(cleanups...)
}

// plantOld puts into the trash what the version before would have, with a record that says when it
// was deleted by the clock of a node, and was written at another time by the server's.
func (w *world) plantOld(slot, keep string, said, written time.Time) {
	w.t.Helper()
	w.write("/.efs-stunnel/trash/"+slot+"/file", "x")
	record := fmt.Sprintf(`{"owner":{"cluster":"c1","namespace":"ns","claim":"c","claimUID":"uid-%s","when":"2026-01-01T00:00:00Z"},"volume":%q,"path":"/ns/%s","deleted":%q,"keep":%q}`,
		slot, slot, slot, said.UTC().Format(time.RFC3339), keep)
	w.write("/.efs-stunnel/trash/@"+slot, record)
	if err := os.Chtimes(w.path("/.efs-stunnel/trash/@"+slot), written, written); err != nil {
		w.t.Fatal(err)
	}
}

// A directory is kept by the server's clock, however wrong those of the nodes are that delete and
// sweep.
func TestTrashIsKeptByTheServersClock(t *testing.T) {
	const days = 24 * time.Hour
	for name, wrong := range map[string]time.Duration{"right": 0, "3 days fast": 3 * days, "3 days slow": -3 * days} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := owner("c1", "ns", 1)
			w.done(setupOf(a, "/ns/data"))
			op := cleanupOf(a, "/ns/data")
			op.Keep = "72h"
			server := w.now
			onNode := func() *FileSystem {
				f := w.open(nil)
				f.now = func() time.Time { return server.Add(wrong) }
				f.serverTime = func() time.Time { return server }
				return f
			}
			f := onNode()
			if result := f.Run(t.Context(), []Operation{op}, nil).Results[0]; result.State != Done {
				t.Fatalf("%+v", result)
			}
			f.Close()
			for _, tt := range []struct {
				after time.Duration
				there bool
			}{{0, true}, {3*days - 1, true}, {3*days + 3*days/100, false}} {
				server = w.now.Add(tt.after)
				f := onNode()
				if _, err := f.Sweep(t.Context(), SweepOptions{}); err != nil {
					t.Fatal(err)
				}
				f.Close()
				if w.inTrash(a.Volume) != tt.there {
					t.Errorf("after %s: in the trash is %t", tt.after, !tt.there)
				}
			}
		})
	}
}

// Records of the version before have a node's time; what counts is when the server wrote them.
func TestOldRecordsAreKeptByTheServersClock(t *testing.T) {
	w := newWorld(t)
	const days = 24 * time.Hour
	w.plantOld("early", "72h", w.now.Add(-100*days), w.now.Add(-time.Hour))
	w.plantOld("late", "72h", w.now.Add(100*days), w.now.Add(-4*days))
	w.plantOld("forever", "forever", w.now.Add(-100*days), w.now.Add(-4*days))
	swept := w.sweep(0)
	if !w.inTrash("early") || w.inTrash("late") || !w.inTrash("forever") {
		t.Errorf("early %t, late %t, forever %t", w.inTrash("early"), w.inTrash("late"), w.inTrash("forever"))
	}
	if swept.Volumes != 1 || swept.Kept != 2 || swept.Indexed != 2 || !isSoonAfter(swept.Next, w.now.Add(71*time.Hour)) {
		t.Errorf("%+v", swept)
	}
	w.sweep(72 * time.Hour)
	if w.inTrash("early") {
		t.Error("early is kept for too long")
	}
}

func TestTheServerIsAskedForItsTime(t *testing.T) {
	w := newWorld(t)
	f := w.open(nil)
	defer f.Close()
	long := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(w.path("/.efs-stunnel"), long, long); err != nil {
		t.Fatal(err)
	}
	const tick = time.Second // file systems count in ticks
	before := time.Now().Add(-tick)
	said, err := f.askTime(t.Context())
	if err != nil || said.Before(before) || said.After(time.Now().Add(tick)) {
		t.Errorf("%s, %v", said, err)
	}
}

// A sweep reads what is due and nothing else, however much is kept.
func TestSweepReadsOnlyWhatIsDue(t *testing.T) {
	w := newWorld(t)
	w.fill("720h", 0, 200)
	w.fill("forever", 200, 250)
	w.fill("1h", 300, 303)
	w.fill("", 400, 402)
	var now, later, never steps
	swept, err := w.sweepWith(t.Context(), now.hook, w.now)
	if err != nil || swept.Volumes != 2 || swept.Kept != 253 || now.count(readingRecords) != 2 {
		t.Errorf("%d records were read: %+v, %v", now.count(readingRecords), swept, err)
	}
	swept, err = w.sweepWith(t.Context(), later.hook, w.now.Add(2*time.Hour))
	if err != nil || swept.Volumes != 3 || swept.Kept != 250 || later.count(readingRecords) != 3 {
		t.Errorf("%d records were read: %+v, %v", later.count(readingRecords), swept, err)
	}
	swept, err = w.sweepWith(t.Context(), never.hook, w.now.Add(2*time.Hour))
	if err != nil || swept.Volumes != 0 || never.count(readingRecords) != 0 || swept.NextIn <= 0 {
		t.Errorf("%d records were read: %+v, %v", never.count(readingRecords), swept, err)
	}
	if due, check := later.first("condemn "), later.first("list /.efs-stunnel/trash"); due > check {
		t.Errorf("the trash is listed at step %d, before what is due is removed from step %d on", check, due)
	}
}

// The names in a large trash are listed now and then only.
func TestALargeTrashIsListedOnceAnHour(t *testing.T) {
	w := newWorld(t)
	w.sweep(0)
	for n := range alwaysChecked + 1 { // what no record is known of is counted as well
		if err := os.Mkdir(w.path(fmt.Sprintf("/.efs-stunnel/trash/%d", n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lists := func(after time.Duration) int {
		var all steps
		swept, err := w.sweepWith(t.Context(), all.hook, w.now.Add(after))
		if err != nil || swept.Kept != alwaysChecked+1 || swept.Unknown != swept.Kept {
			t.Errorf("after %s: %+v, %v", after, swept, err)
		}
		return all.count("list /.efs-stunnel/trash")
	}
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 0}, {checkInterval - 1, 0}, {checkInterval, 1}, {checkInterval + time.Minute, 0}, {-24 * time.Hour, 1}, {0, 1}} {
		if got := lists(tt.after); got != tt.want {
			t.Errorf("after %s: it is listed %d times, want %d", tt.after, got, tt.want)
		}
	}
}

// What the version before left is indexed in pieces, and one that is stopped is gone on with.
func TestOldRecordsAreIndexedOnce(t *testing.T) {
	w := newWorld(t)
	const total = 3*checkedAtOnce + 10
	for n := range total {
		w.plantOld(fmt.Sprintf("old-%d", n), "720h", w.now, w.now)
	}
	reads := 0
	for tries := 1; ; tries++ {
		ctx, stop := context.WithCancel(t.Context())
		var all steps
		swept, err := w.sweepWith(ctx, func(step string) error {
			if all.count(readingRecords) == 300 {
				stop()
			}
			return all.hook(step)
		}, w.now)
		stop()
		reads += all.count(readingRecords)
		if err == nil {
			if swept.Kept != total {
				t.Errorf("%+v", swept)
			}
			break
		}
		if !IsStop(err) || swept.Indexed == 0 || tries > total {
			t.Fatalf("try %d: %+v, %v", tries, swept, err)
		}
	}
	if reads > 2*total {
		t.Errorf("%d reads of %d records", reads, total)
	}
	var again steps
	if _, err := w.sweepWith(t.Context(), again.hook, w.now); err != nil || again.count(readingRecords) != 0 {
		t.Errorf("%d records are read again, %v", again.count(readingRecords), err)
	}
	w.plantOld("another", "0", w.now, w.now) // by an older mountjob of another cluster
	if swept := w.sweep(0); swept.Volumes != 1 || w.inTrash("another") {
		t.Errorf("%+v", swept)
	}
}

// Removal begins with the first piece, not when all is condemned.
func TestSweepRemovesInPieces(t *testing.T) {
	w := newWorld(t)
	const total = 2*condemnedAtOnce + 1
	w.fill("", 0, total)
	var all steps
	swept, err := w.sweepWith(t.Context(), all.hook, w.now)
	if err != nil || swept.Volumes != total || swept.Removed != total {
		t.Fatalf("%+v, %v", swept, err)
	}
	condemned := 0
	for _, step := range all.names {
		if strings.HasPrefix(step, "condemn ") {
			condemned++
		}
		if strings.HasPrefix(step, "sweep swept-") && condemned <= condemnedAtOnce {
			return
		}
	}
	t.Errorf("nothing is removed before %d directories are condemned", condemned)
}

// A sweep that is stopped has removed something, and says that it had more to do.
func TestSweepThatIsStoppedBetweenPieces(t *testing.T) {
	w := newWorld(t)
	const total = 3 * condemnedAtOnce
	w.fill("", 0, total)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all steps
	swept, err := w.sweepWith(ctx, func(step string) error {
		if all.count("condemn ") > condemnedAtOnce {
			stop()
		}
		return all.hook(step)
	}, w.now)
	if !IsStop(err) || swept.Volumes == 0 || swept.Volumes == total || swept.Removed == 0 {
		t.Errorf("%+v, %v", swept, err)
	}
	if swept := w.sweep(0); swept.Volumes == 0 || swept.Kept != 0 {
		t.Errorf("%+v", swept)
	}
	w.wantEmptyTrash()
}

// Records that were cut off, or are a newer version's, protect their directories.
func TestRecordsThatCannotBeReadProtect(t *testing.T) {
	w := newWorld(t)
	long := w.now.Add(-1000 * time.Hour)
	for slot, record := range map[string]string{
		"torn":  `{"owner":{"cluster":"c1","namespace":"n`,
		"empty": "",
		"newer": `{"owner":{"cluster":"c1","when":"2026-01-01T00:00:00Z"},"volume":"newer","keep":"until the audit"}`,
		"other": `[1,2,3]`,
	} {
		w.plantOld(slot, "0", long, long)
		w.write("/.efs-stunnel/trash/@"+slot, record)
	}
	w.plantOld("due", "0", long, long)
	if err := os.MkdirAll(w.path("/.efs-stunnel/due/20200101T000000Z/torn"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		swept := w.sweep(0)
		if swept.Kept != 4 || swept.Unknown < 3 || w.inTrash("due") {
			t.Errorf("%+v", swept)
		}
		w.there("/.efs-stunnel/trash/torn/file", "/.efs-stunnel/trash/empty/file", "/.efs-stunnel/trash/newer/file", "/.efs-stunnel/trash/other/file")
	}
}

// An index that is wrong removes nothing early, and forgets nothing.
func TestTheRecordDecidesNotTheIndex(t *testing.T) {
	w := newWorld(t)
	w.fill("72h", 0, 1)
	slot := owner("c1", "ns", 0).Volume
	if err := os.RemoveAll(w.path("/.efs-stunnel/due")); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"at-once/" + slot, "20200101T000000Z/" + slot, "20200101T000000Z/restored-meanwhile", "a newer version's/x"} {
		if err := os.MkdirAll(w.path("/.efs-stunnel/due/"+wrong), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if swept := w.sweep(0); !w.inTrash(slot) || swept.NextIn == 0 {
		t.Errorf("%+v", swept)
	}
	w.gone("/.efs-stunnel/due/20200101T000000Z", "/.efs-stunnel/due/at-once/"+slot)
	w.there("/.efs-stunnel/due/a newer version's/x")
	if w.sweep(73 * time.Hour); w.inTrash(slot) {
		t.Error("it is not removed")
	}
}

// Mountjobs of the version before take every other name that begins with @ for a record.
func TestTheTrashHoldsNothingNewForOlderVersions(t *testing.T) {
	w := newWorld(t)
	for n, keep := range []string{"", "1h", "forever"} {
		w.fill(keep, n, n+1)
	}
	w.sweep(0)
	found, err := filepath.Glob(w.path("/.efs-stunnel/trash/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	if want := []string{"@@sweeping", "@pvc-c1-ns-1", "@pvc-c1-ns-2", "pvc-c1-ns-1", "pvc-c1-ns-2"}; !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
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
		w := newWorld(t)
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
		w.do(restoreOf(owner("c1", "ns", 3), "/ns/again", a.ClaimUID), Failed, NothingToRestore)
	}
}

func TestRestoresComeAfterSetupsOfOtherPaths(t *testing.T) {
	o := func(n int) Owner { return owner("c1", "ns", n) }
	operations := []Operation{
		restoreOf(o(0), "/back", "x"), setupOf(o(1), "/back"), setupOf(o(2), "/other"), cleanupOf(o(3), "/back"),
		setupOf(o(4), "/third"), releaseOf(o(5), "/other"), restoreOf(o(6), "/more", "y"),
	}
	if got, want := order(operations), []int{5, 3, 2, 4, 0, 6, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Restores of unknown uids cost one listing together, and no setup of another path waits for it.
func TestRestoresOfUnknownUIDs(t *testing.T) {
	w := newWorld(t)
	for n := range 300 {
		w.plantOld(fmt.Sprintf("pvc-01234567-89ab-cdef-0123-%012d", n), "forever", w.now, w.now)
	}
	for n := range 5 {
		w.plantOld(fmt.Sprintf("original-%d", n), "forever", w.now, w.now)
	}
	var operations []Operation
	for n := range 1000 {
		operations = append(operations, restoreOf(owner("c1", "evil", n), fmt.Sprintf("/evil/%d", n), fmt.Sprintf("unknown-%d", n)))
	}
	operations = append(operations, restoreOf(owner("c1", "ns", 1), "/ns/back", "uid-original-3"), setupOf(owner("c1", "ns", 2), "/ns/data"))
	var all steps
	f := w.open(all.hook)
	defer f.Close()
	results := f.Run(t.Context(), operations, nil).Results
	for i, result := range results {
		if refused := i < 1000; refused != (result.Reason == NothingToRestore) || !refused && result.State != Done {
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

func TestRestoreHeedsTheDeadline(t *testing.T) {
	w := newWorld(t)
	for n := range 50 {
		w.plantOld(fmt.Sprintf("original-%d", n), "forever", w.now, w.now)
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
	result := f.Run(ctx, []Operation{restoreOf(owner("c1", "ns", 1), "/ns/back", "uid-original-3")}, nil).Results[0]
	if result.State != NotDone || result.Reason != Stopped {
		t.Errorf("%+v", result)
	}
	w.gone("/ns/back")
}

func TestBucketFor(t *testing.T) {
	due := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, tt := range []struct {
		keep    time.Duration
		forever bool
		want    string
	}{
		{0, false, "at-once"},
		{0, true, "never"},
		{2 * time.Second, false, "20260102T030406Z"},
		{100 * time.Minute, false, "20260102T030500Z"},
		{72 * time.Hour, false, "20260102T033600Z"},
		{100000 * time.Hour, false, "20260103T000000Z"},
	} {
		bucket := bucketFor(due, tt.keep, tt.forever)
		at, ok := bucketTime(bucket)
		if bucket != tt.want || ok == tt.forever || ok && !at.IsZero() && at.Before(due) {
			t.Errorf("kept for %s: got %s, want %s", tt.keep, bucket, tt.want)
		}
	}
	for _, name := range []string{"", "never", "checked.20260102T030405Z.1.2", "20260102", "at-Once"} {
		if _, ok := bucketTime(name); ok {
			t.Errorf("%q is taken for a time", name)
		}
	}
}
