package worker

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// found are the lines of a survey, which the manager reads from the log.
func (w *container) found() (all []operations.Usage) {
	w.t.Helper()
	for line := range strings.Lines(w.stdout.String()) {
		usage, err := operations.DecodeUsage([]byte(line))
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, usage)
	}
	return all
}

func TestSurveyWritesALineForEachVolume(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/a"), setup("pvc-2", "/team/b"))
	mustRun(t, w)
	w.write(filepath.Join(w.directory, "team/b/file"), []byte("data"))
	if code := w.run(t.Context(), commandSurvey); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	found := w.found()
	if len(found) != 2 || found[0].Path != "/team/a" || found[0].Files != 1 || found[1].Path != "/team/b" || found[1].Files != 2 {
		t.Errorf("found %+v", found)
	}
	if report := w.taskReport(); report != (operations.TaskReport{Counted: 2}) {
		t.Errorf("report %+v", report)
	}
}

func TestSurveyGoesOnAfterAPath(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/a"), setup("pvc-2", "/team/b"))
	mustRun(t, w)
	if code := w.run(t.Context(), commandSurvey, "--after=/team/a"); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	if found := w.found(); len(found) != 1 || found[0].Path != "/team/b" {
		t.Errorf("found %+v", found)
	}
}

func TestStoppedSurveyReportsThat(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/a"))
	mustRun(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := w.run(ctx, commandSurvey); code != exitFailed || !w.taskReport().Stopped || w.taskReport().Succeeded() {
		t.Errorf("exit code %d, message %s", code, w.message())
	}
}

// A survey of a file system that no volume was ever made on writes nothing there.
func TestSurveyWritesNothing(t *testing.T) {
	w := newContainer(t)
	if code := w.run(t.Context(), commandSurvey); code != exitDone || !w.taskReport().Succeeded() {
		t.Errorf("exit code %d, message %s", code, w.message())
	}
	if w.exists(".efs-stunnel") {
		t.Error("there is a state directory now")
	}
}

func TestSurveyRefusesAnotherFileSystem(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/a"))
	mustRun(t, w)
	if code := w.run(t.Context(), commandSurvey, "--file-system-id=fs-other"); code != exitFailed || !strings.Contains(w.taskReport().Error, fileSystemID) {
		t.Errorf("exit code %d, message %s", code, w.message())
	}
	if len(w.found()) > 0 {
		t.Error("volumes of another file system were reported")
	}
}
