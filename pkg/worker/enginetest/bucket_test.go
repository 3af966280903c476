package enginetest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
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
	if due, kept := later.first("stage "), later.first("list /.efs-stunnel/trash/NEVER"); due > kept {
		t.Errorf("what is kept is counted at step %d, before what is due is removed from step %d on", kept, due)
	}
}

// Removal begins with the first piece, not when all is staged.
func TestSweepRemovesInPieces(t *testing.T) {
	w := newFixture(t)
	const total = 2*64 + 1
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
		if strings.HasPrefix(step, "sweep swept-") && staged <= 64 {
			return
		}
	}
	t.Errorf("nothing is removed before %d directories are staged", staged)
}

// A sweep that is stopped has removed something, and says that it had more to do.
func TestSweepThatIsStoppedBetweenPieces(t *testing.T) {
	w := newFixture(t)
	const total = 3 * 64
	w.fill("", 0, total)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all steps
	swept, err := w.sweepWith(ctx, func(step string) error {
		if all.count("stage ") > 64 {
			stop()
		}
		return all.hook(step)
	}, w.now)
	if !fsroot.IsStop(err) || swept.Volumes == 0 || swept.Volumes == total || swept.Removed == 0 {
		t.Errorf("%+v, %v", swept, err)
	}
	if swept := w.sweep(0); swept.Volumes == 0 || swept.Kept != 0 {
		t.Errorf("%+v", swept)
	}
	w.wantEmptyTrash()
}

// What is in a wrong bucket is not removed early, and not forgotten.
func TestRecordDecidesNotTheBucket(t *testing.T) {
	w := newFixture(t)
	w.fill("72h", 0, 1)
	slot := owner("c1", "ns", 0).Volume
	w.write("/.efs-stunnel/trash/20200101T000000Z/without-record/file", "x")
	for _, prefix := range []string{"", "@"} {
		if err := os.Rename(w.path(w.slot(prefix+slot)), w.path("/.efs-stunnel/trash/20200101T000000Z/"+prefix+slot)); err != nil {
			t.Fatal(err)
		}
	}
	if swept := w.sweep(0); !w.inTrash(slot) || swept.NextIn == 0 || swept.Kept != 2 || swept.Unknown != 1 {
		t.Errorf("%+v", swept)
	}
	if w.sweep(73 * time.Hour); w.inTrash(slot) {
		t.Error("it is not removed")
	}
	w.there("/.efs-stunnel/trash/20200101T000000Z/without-record/file")
}
