package worker

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

func cloneOf(source, sourcePath string) operations.Operation {
	from := owner(source)
	return operations.Operation{
		Kind: operations.Clone, Owner: owner("pvc-2"), Path: "/team/b",
		Source: operations.Source{SourcePath: sourcePath, SourceVolume: from.Volume, SourceClaim: from.Claim, SourceClaimUID: from.ClaimUID},
	}
}

func withSource(t *testing.T) *container {
	w := newContainer(t, setup("pvc-1", "/team/a"))
	mustRun(t, w)
	w.write(filepath.Join(w.directory, "team/a/file"), []byte("data"))
	return w
}

func TestCloneCopiesAVolume(t *testing.T) {
	w := withSource(t)
	w.ask(cloneOf("pvc-1", "/team/a"))
	if code := w.run(t.Context(), commandClone); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, &w.stderr)
	}
	if result := w.report(1).Results[0]; result.State != operations.Done || !strings.Contains(result.Message, "copied 2 files") {
		t.Errorf("result %+v", result)
	}
	if !w.exists("team/b/file") {
		t.Error("the copy is not there")
	}
}

func TestCloneReportsWhatWasNotDone(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx    context.Context
		change func(w *container)
		want   operations.Result
		code   int
	}{
		"it was stopped":     {ended, func(*container) {}, operations.Result{State: operations.NotDone, Reason: operations.Stopped}, exitFailed},
		"there is no source": {t.Context(), func(w *container) { w.ask(cloneOf("pvc-3", "/team/c")) }, operations.Result{State: operations.Failed, Reason: operations.SourceGone}, exitDone},
		"it is no clone":     {t.Context(), func(w *container) { w.ask(setup("pvc-2", "/team/b")) }, operations.Result{State: operations.Failed, Reason: operations.BadOperation}, exitDone},
		"it is not mounted":  {t.Context(), func(w *container) { w.mountErr = errHung }, operations.Result{State: operations.NotDone, Reason: operations.IOError}, exitFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := withSource(t)
			w.ask(cloneOf("pvc-1", "/team/a"))
			tt.change(w)
			if code := w.run(tt.ctx, commandClone); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if got := w.report(1).Results[0]; got.State != tt.want.State || got.Reason != tt.want.Reason {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCloneOfSeveralVolumesIsRefused(t *testing.T) {
	w := withSource(t)
	one := cloneOf("pvc-1", "/team/a")
	w.ask(one, one)
	if code := w.run(t.Context(), commandClone); code != exitFailed || !strings.Contains(w.message(), "a clone has one operation, not 2") {
		t.Errorf("exit code %d, message %s", code, w.message())
	}
}

func TestCloneWritesItsProgress(t *testing.T) {
	w := newContainer(t)
	synctest.Test(t, func(t *testing.T) {
		stop := every(t.Context(), 10*time.Second, func() {
			job{Program: Program{Stdout: &w.stdout}}.writeProgress(operations.CloneProgress{Files: 3, Found: 7, Bytes: 9})
		})
		<-time.After(25 * time.Second)
		stop()
	})
	lines := strings.Split(strings.TrimSpace(w.stdout.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %q", lines)
	}
	if got, err := operations.DecodeCloneProgress([]byte(lines[1])); err != nil || got != (operations.CloneProgress{Files: 3, Found: 7, Bytes: 9}) {
		t.Errorf("got %+v (%v)", got, err)
	}
}
