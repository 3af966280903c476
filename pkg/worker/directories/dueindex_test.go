package directories

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// However much is kept, a sweep reads what is due and nothing else.
func TestSweepReadsOnlyWhatIsDue(t *testing.T) {
	w := newFixture(t)
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
	if due, check := later.first("stage "), later.first("list /.efs-stunnel/trash"); due > check {
		t.Errorf("the trash is listed at step %d, before what is due is removed from step %d on", check, due)
	}
}

func TestLargeTrashIsListedOnceAnHour(t *testing.T) {
	w := newFixture(t)
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

func TestOldRecordsAreIndexedOnce(t *testing.T) {
	w := newFixture(t)
	const total = 3*recordsAtOnce + 10
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

// Removal begins with the first piece, not when all is staged.
func TestSweepRemovesInPieces(t *testing.T) {
	w := newFixture(t)
	const total = 2*stagedAtOnce + 1
	w.fill("", 0, total)
	var all steps
	swept, err := w.sweepWith(t.Context(), all.hook, w.now)
	if err != nil || swept.Volumes != total || swept.Removed != total {
		t.Fatalf("%+v, %v", swept, err)
	}
	staged := 0
	for _, step := range all.names {
		if strings.HasPrefix(step, "stage ") {
			staged++
		}
		if strings.HasPrefix(step, "sweep swept-") && staged <= stagedAtOnce {
			return
		}
	}
	t.Errorf("nothing is removed before %d directories are staged", staged)
}

// A sweep that is stopped has removed something, and says that it had more to do.
func TestSweepThatIsStoppedBetweenPieces(t *testing.T) {
	w := newFixture(t)
	const total = 3 * stagedAtOnce
	w.fill("", 0, total)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all steps
	swept, err := w.sweepWith(ctx, func(step string) error {
		if all.count("stage ") > stagedAtOnce {
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

// An index that is wrong removes nothing early, and forgets nothing.
func TestRecordDecidesNotTheIndex(t *testing.T) {
	w := newFixture(t)
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
