package worker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// request runs a request, and reads the trash from the log of the container.
func (w *container) request(r requests.Request) (code int, trashed []requests.Trashed, end requests.End) {
	w.t.Helper()
	code, lines, end := w.requestLines(r)
	for _, line := range lines {
		trashed = append(trashed, *line.Trashed)
	}
	return code, trashed, end
}

func (w *container) requestLines(r requests.Request) (code int, lines []requests.Line, end requests.End) {
	w.t.Helper()
	text, err := r.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.stdout.Reset()
	w.stderr.Reset()
	code = w.run(w.t.Context(), commandLedger, "--request="+string(text))
	log := bytes.NewReader(append(w.stderr.Bytes(), w.stdout.Bytes()...))
	end, err = requests.Read(log, func(line requests.Line) { lines = append(lines, line) })
	if err != nil {
		w.t.Fatal(err, w.stdout.String())
	}
	return code, lines, end
}

func TestTrashIsListedAndEmptied(t *testing.T) {
	kept := cleanup("v1", "/team/a")
	kept.Keep = "forever"
	w := newContainer(t, setup("v1", "/team/a"))
	w.write(w.terminationLog, nil)
	for _, op := range []operations.Operation{setup("v1", "/team/a"), kept} {
		w.ask(op)
		if code := w.run(t.Context(), commandRun); code != exitDone {
			t.Fatal(w.stderr.String())
		}
	}
	code, trashed, end := w.request(requests.Request{Do: requests.ListTrash})
	if code != exitDone || len(trashed) != 1 || trashed[0].Claim != "claim-v1" || !trashed[0].Forever || end.Swept != nil {
		t.Fatalf("code %d: %+v, %+v", code, trashed, end)
	}
	selection := &requests.Selection{Cluster: "c1", Until: trashed[0].Deleted.Add(-time.Second)}
	if code, _, end = w.request(requests.Request{Do: requests.EmptyTrash, Selection: selection}); code != exitDone || end.Swept.Volumes != 0 {
		t.Errorf("what came after the list: code %d: %+v", code, end)
	}
	selection.Until = trashed[0].Deleted
	if code, _, end = w.request(requests.Request{Do: requests.EmptyTrash, Selection: selection}); code != exitDone || end.Swept.Volumes != 1 {
		t.Errorf("code %d: %+v", code, end)
	}
	if w.exists(".efs-stunnel/trash/NEVER/v1") {
		t.Error("the directory is still there")
	}
}

func TestRequestOnAnotherFileSystemChangesNothing(t *testing.T) {
	w := newContainer(t)
	w.mountErr = errors.New("not an NFS mount")
	code, trashed, end := w.request(requests.Request{Do: requests.ListTrash})
	if code != exitFailed || len(trashed) > 0 || !strings.Contains(end.Error, "not an NFS mount") || !strings.Contains(w.message(), "not an NFS mount") {
		t.Errorf("code %d: %+v: %s", code, end, w.message())
	}
	if w.exists(".efs-stunnel") {
		t.Error("the folder of the container has been changed")
	}
}

// TestDirectoriesAreListedAndAdopted also by another cluster, while the one that has them seems to live.
func TestDirectoriesAreListedAndAdopted(t *testing.T) {
	w := newContainer(t)
	w.write(w.terminationLog, nil)
	if err := os.MkdirAll(filepath.Join(w.directory, "legacy", "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := requests.Request{Do: requests.ListDirectories, Directories: &requests.Directories{Patterns: []string{"/legacy/*"}}}
	code, lines, _ := w.requestLines(list)
	if code != exitDone || len(lines) != 1 || lines[0].Directory.Path != "/legacy/a" {
		t.Fatalf("code %d: %+v", code, lines)
	}
	a := requests.Volume{Name: "pvc-a", Path: "/legacy/a", Namespace: "team", Claim: "a", ClaimUID: "u1"}
	adopt := requests.Request{Do: requests.AdoptVolumes, Adoption: &requests.Adoption{Cluster: "c1", Volumes: []requests.Volume{a}}}
	if code, lines, _ = w.requestLines(adopt); code != exitDone || len(lines) != 1 || lines[0].Adopted.Problem != "" {
		t.Fatalf("code %d: %+v", code, lines)
	}
	if code, lines, _ = w.requestLines(list); code != exitDone || len(lines) != 2 || lines[0].Owned.Claim != "a" {
		t.Errorf("code %d: %+v", code, lines)
	}
	lost := &requests.Lost{Cluster: "c1"}
	code, lines, end := w.requestLines(requests.Request{Do: requests.ListOwners, Lost: lost})
	if code != exitFailed || len(lines) > 0 || !strings.Contains(end.Error, "seems to live") {
		t.Errorf("code %d: %+v, %+v", code, lines, end)
	}
	adopt.Adoption.Cluster, adopt.Adoption.Lost = "c2", lost
	if code, lines, end = w.requestLines(adopt); code != exitFailed || len(lines) > 0 || !strings.Contains(end.Error, "seems to live") {
		t.Errorf("code %d: %+v, %+v", code, lines, end)
	}
	lost.Force = true
	if code, lines, _ = w.requestLines(adopt); code != exitDone || len(lines) != 1 || lines[0].Adopted.Problem != "" {
		t.Errorf("code %d: %+v", code, lines)
	}
}
