package operations

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// The manager may be of an older or a newer version than mountjob.
func TestTaskReportFormat(t *testing.T) {
	golden, err := os.ReadFile("testdata/sweep-report.json")
	if err != nil {
		t.Fatal(err)
	}
	want := TaskReport{
		Swept: Swept{
			Removed: 1234, Volumes: 2, Kept: 1, Unknown: 1,
			Next: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), NextIn: 60,
		},
		Stopped: true,
		Error:   `emptying "x" in /.efs-stunnel/trash: input/output error`,
	}
	if got, err := DecodeTaskReport(golden); err != nil || got != want {
		t.Errorf("got %+v with error %v, want %+v", got, err, want)
	}
	if got, err := want.Encode(); err != nil || !bytes.Equal(got, bytes.TrimSpace(golden)) {
		t.Errorf("encoded again: %s, error %v", got, err)
	}
}

func TestTaskReportWithLongErrorIsTruncated(t *testing.T) {
	got, err := TaskReport{Swept: Swept{Removed: 7}, Counted: 7, Error: strings.Repeat("\x00", 5000)}.Encode()
	if err != nil || len(got) > wellknown.MaxTerminationMessageBytes {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
	if report, err := DecodeTaskReport(got); err != nil || report.Removed != 7 || report.Counted != 7 || report.Error == "" {
		t.Errorf("got %+v, error %v", report, err)
	}
}

func TestDecodeTaskReportOfDamagedMessageIsZero(t *testing.T) {
	for _, message := range []string{"", "OOMKilled", `{"removed":7`, `{"removed":7,"volumes":"many"}`} {
		if report, err := DecodeTaskReport([]byte(message)); err == nil || report != (TaskReport{}) {
			t.Errorf("%q: got %+v, error %v", message, report, err)
		}
	}
}
