package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func TestRunDoesABatch(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"), setup("pvc-2", "/team/more"))
	if code := w.run(t.Context(), commandRun); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	if !w.exists("team/data") || !w.exists("team/more") {
		t.Error("the directories are not there")
	}
	if report := w.report(2); !report.Succeeded() {
		t.Errorf("report %+v", report)
	}
}

func TestRunAgainIsHarmless(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	for range 2 {
		if code := w.run(t.Context(), commandRun); code != exitDone {
			t.Fatalf("exit code %d\n%s", code, &w.stderr)
		}
	}
}

func TestRunReportsWhatItCouldNotDo(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"), setup("pvc-2", "/team/data/nested"))
	if code := w.run(t.Context(), commandRun); code != exitDone { // a failed Job would be an alert
		t.Errorf("exit code %d", code)
	}
	report := w.report(2)
	if report.Results[0].State != operations.Done || report.Results[1].Reason != operations.Nested {
		t.Errorf("report %+v", report)
	}
}

// The log has a line for each operation, and one for the batch.
func TestLogNamesEachOperation(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"), setup("pvc-2", "/team/data/nested"))
	w.run(t.Context(), commandRun, "--log-format=json")
	var lines []string
	for line := range strings.Lines(w.stderr.String()) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		_, timed := o["duration"].(string)
		lines = append(lines, fmt.Sprint(o["level"], " ", o["msg"], ": ", o["action"], " ", o["path"], " ", o["volume"], " ", o["claim"], " ", o["reason"], " ", o["count"], " ", timed))
	}
	want := []string{
		"INFO mountjob started: <nil> <nil> <nil> <nil> <nil> <nil> false",
		"INFO batch started: <nil> <nil> <nil> <nil> <nil> map[batch:1 operations:2] false",
		"INFO operation is done: created /team/data pvc-1 team/claim-pvc-1 <nil> <nil> true",
		"WARN operation is not done: refused /team/data/nested pvc-2 team/claim-pvc-2 Nested <nil> true",
		"INFO batch ended: <nil> <nil> <nil> <nil> <nil> map[blocked:0 done:1 failed:1 notDone:0 operations:2] true",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestRunTouchesNothingWithoutTheMount(t *testing.T) {
	for _, command := range []string{commandRun, commandSweep} {
		t.Run(command, func(t *testing.T) {
			w := newContainer(t, setup("pvc-1", "/team/data"))
			w.mountErr = fsroot.CheckNFS(w.directory)
			if w.mountErr == nil {
				t.Skip("temporary directories are on NFS here")
			}
			if code := w.run(t.Context(), command); code != exitFailed {
				t.Errorf("exit code %d", code)
			}
			if found, err := os.ReadDir(w.directory); err != nil || len(found) > 0 {
				t.Errorf("found %v, error %v", found, err)
			}
			if !strings.Contains(w.message(), "is not an NFS mount") {
				t.Errorf("message %s", w.message())
			}
		})
	}
}

func TestRunRefusesAnotherFileSystem(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	if code := w.run(t.Context(), commandRun); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	if code := w.run(t.Context(), commandRun, "--file-system-id=fs-copy"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if result := w.report(1).Results[0]; result.State != operations.NotDone || result.Reason != operations.WrongFileSystem {
		t.Errorf("result %+v", result)
	}
	if code := w.run(t.Context(), commandRun, "--file-system-id=fs-copy", "--aliases=fs-other,"+fileSystemID); code != exitDone {
		t.Errorf("an alias: exit code %d\n%s", code, &w.stderr)
	}
}

// TestServersOtherDiskIsNotUsed: Jobs of a server with volumes make no ledger on a disk without a marker.
func TestServersOtherDiskIsNotUsed(t *testing.T) {
	w := newContainer(t, setup("v1", "/team/a"))
	w.write(w.terminationLog, nil)
	if code := w.run(t.Context(), commandRun, "--used"); code == exitDone {
		t.Error("the Job succeeded")
	}
	if result := w.report(1).Results[0]; result.State != operations.NotDone || result.Reason != operations.WrongFileSystem {
		t.Errorf("the result is %+v", result)
	}
	if entries, err := os.ReadDir(w.directory); err != nil || len(entries) > 0 {
		t.Errorf("the disk has %v, %v", entries, err)
	}
}

func TestRunStopsBetweenTwoSteps(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := w.run(ctx, commandRun); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if result := w.report(1).Results[0]; result.State != operations.NotDone || result.Reason != operations.Stopped {
		t.Errorf("result %+v", result)
	}
	if w.exists("team") {
		t.Error("something was made")
	}
}

func TestRunStopsAfterAnOperation(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"), setup("pvc-2", "/team/data/more")) // one after the other
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.progress = func(done int) {
		if done == 1 {
			cancel()
		}
	}
	if code := w.run(ctx, commandRun); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	results := w.report(2).Results
	if results[0].State != operations.Done || results[1].Reason != operations.Stopped || w.exists("team/data/more") {
		t.Errorf("results %+v", results)
	}
}

func TestRunStopsBeforeItsDeadline(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	if code := w.run(t.Context(), commandRun, "--deadline=1ns", "--deadline-margin=0s"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if message := w.report(1).Results[0].Message; !strings.Contains(message, "time was over") {
		t.Errorf("message %q", message)
	}
}

func TestRunDoesNotHangWithTheFileSystem(t *testing.T) {
	for _, command := range []string{commandRun, commandSweep} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newContainer(t, setup("pvc-1", "/team/data"))
				server := make(chan struct{})
				defer func() {
					close(server)
					synctest.Wait() // for the work, before the folder is removed
				}()
				w.hang = server
				ctx, terminate := context.WithTimeout(t.Context(), time.Minute)
				defer terminate()
				start := time.Now()
				if code := w.run(ctx, command); code != exitFailed || !strings.Contains(w.message(), "did not answer") {
					t.Errorf("exit code %d, message %q", code, w.message())
				}
				if took := time.Since(start); took < time.Minute || took > 90*time.Second {
					t.Errorf("it ended after %s, and the pod's grace after 90 seconds", took)
				}
			})
		})
	}
}

// TestRunThatWaitedForTheServerRemovesNothing: its Job may have a successor, and the volume may be wanted again.
func TestRunThatWaitedForTheServerRemovesNothing(t *testing.T) {
	for silent, removed := range map[time.Duration]bool{time.Second: true, 2 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newContainer(t, setup("pvc-1", "/team/data"))
			mustRun(t, w)
			w.ask(cleanup("pvc-1", "/team/data"))
			hang := make(chan struct{})
			w.hang = hang
			time.AfterFunc(silent, func() { close(hang) })
			w.run(t.Context(), commandRun)
			if w.exists("team/data") == removed {
				t.Errorf("a server that was silent for %s: removed %v, report %s", silent, !removed, w.message())
			}
		})
	}
}

func TestRunWithOperationsThatCannotBeRead(t *testing.T) {
	tests := map[string]struct {
		data string
		want string
	}{
		"no JSON":             {"{", "reading operations"},
		"a newer manager's":   {`{"operations":[{"do":"setup","color":"red"}]}`, `unknown field`},
		"more than a Job has": {strings.Repeat(" ", 1<<20), "more than 65536"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newContainer(t)
			w.write(w.operations, []byte(tt.data))
			if code := w.run(t.Context(), commandRun); code != exitFailed || !strings.Contains(w.message(), tt.want) {
				t.Errorf("exit code %d, message %q", code, w.message())
			}
			if w.exists(".efs-stunnel") {
				t.Error("the file system was touched")
			}
		})
	}
}

func TestRunWithoutItsFile(t *testing.T) {
	w := newContainer(t)
	if code := w.run(t.Context(), commandRun, "--operations="+w.operations+".none"); code != exitFailed || !strings.Contains(w.message(), "no such file") {
		t.Errorf("exit code %d, message %q", code, w.message())
	}
}

func TestRunFailsIfItCannotReport(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	code := w.run(t.Context(), commandRun, "--termination-log="+filepath.Join(w.directory, "none", "log"))
	if code != exitFailed || !strings.Contains(w.stderr.String(), "writing the termination message") {
		t.Errorf("exit code %d\n%s", code, &w.stderr)
	}
}

func TestLogIsOneObjectALine(t *testing.T) {
	w := newContainer(t, setup("pvc-1", "/team/data"))
	w.run(t.Context(), commandRun, "--log-level=debug", "--log-format=json")
	for line := range strings.Lines(w.stderr.String()) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || object["fileSystem"] != fileSystemID {
			t.Errorf("line %q: %v", line, err)
		}
	}
}

func TestUsage(t *testing.T) {
	w := newContainer(t)
	w.write(w.terminationLog, nil)
	if code := w.run(t.Context(), commandRun, "--deadline=1s"); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if message := w.message(); !strings.HasPrefix(message, "mountjob: --deadline 1s") || w.stderr.String() != message+"\n" {
		t.Errorf("message %q, log %q", message, w.stderr.String())
	}
}

func TestVersion(t *testing.T) {
	w := newContainer(t)
	if code := w.runRaw(t.Context(), commandVersion); code != exitDone || !strings.HasPrefix(w.stdout.String(), "mountjob ") {
		t.Errorf("exit code %d: %s", code, &w.stdout)
	}
	if code := w.runRaw(t.Context(), "-h"); code != exitDone {
		t.Errorf("help: exit code %d", code)
	}
}

func TestWriteReportNeverExceedsThePodsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	if err := writeReport(path, make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 4096 {
		t.Errorf("size %d, error %v", info.Size(), errors.Join(err))
	}
}
