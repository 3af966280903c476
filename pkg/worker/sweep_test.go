package worker

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestSweepEmptiesTheTrash(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	mustRun(t, w)
	w.write(filepath.Join(w.directory, "team/data/file"), []byte("data"))
	w.ask(cleanup("pvc-1", "/team/data"))
	mustRun(t, w)
	w.now = w.now.AddDate(-50, 0, 0) // the clock of the node has no say
	if code := w.run(t.Context(), commandSweep); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	report := w.taskReport()
	if report.Volumes != 1 || report.Removed < 2 || report.Error != "" || report.Stopped {
		t.Errorf("report %s", w.message())
	}
	log := w.stderr.String()
	if !strings.Contains(log, `"sweep ended"`) {
		t.Errorf("log:\n%s", log)
	}
}

// Records that cannot be read are in the report and in the log.
func TestSweepReportsRecordsThatCannotBeRead(t *testing.T) {
	w := newContainer(t)
	mustRun(t, w)
	torn := filepath.Join(w.directory, ".efs-stunnel/trash/pvc-1")
	if err := os.Mkdir(torn, 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(filepath.Dir(torn), "@pvc-1"), []byte(`{"owner":{"clus`))
	if code := w.run(t.Context(), commandSweep); code != exitDone || w.taskReport().Unknown != 1 {
		t.Errorf("exit code %d, report %s", code, w.message())
	}
	if log := w.stderr.String(); !strings.Contains(log, "no record that this version can read") || !strings.Contains(log, "count.unknown=1") {
		t.Errorf("log:\n%s", log)
	}
}

func TestStoppedSweepReportsThat(t *testing.T) {
	w := newContainer(t)
	mustRun(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := w.run(ctx, commandSweep); code != exitFailed || w.taskReport().Error == "" || !w.taskReport().Stopped {
		t.Errorf("exit code %d, message %s", code, w.message())
	}
}

func TestSweepLogsItsProgressAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		options, stop := job{log: slog.New(slog.NewTextHandler(&log, nil))}.logSweep(t.Context())
		options.Progress(operations.Swept{Removed: 7})
		<-time.After(wellknown.SweepProgressInterval * 5 / 2)
		stop()
		<-time.After(time.Minute)
		if lines := strings.Count(log.String(), "count.removed=7"); lines != 2 {
			t.Errorf("%d lines in two and a half intervals:\n%s", lines, &log)
		}
	})
}

func mustRun(t *testing.T, w *container) {
	t.Helper()
	if code := w.run(t.Context(), commandRun); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
}
