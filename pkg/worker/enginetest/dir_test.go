package enginetest

import (
	"os"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// NFS keeps a removed file as .nfs… while a client has it open; an administrator may leave
// anything in the ledger.
func TestForeignFilesInTheLedgerAreIgnored(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write(".efs-stunnel/owners/.nfs0001", "")
	w.write(".efs-stunnel/owners/ns/.nfs0002", "")
	w.write(".efs-stunnel/owners/ns/data/note", "mine")
	w.link("../../trash", ".efs-stunnel/owners/ns/link")
	w.do(setupOf(b, "/ns"), operations.Failed, operations.Nested)
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/ns/data", "/.efs-stunnel/owners/ns/data/@"+a.Volume)
	w.there("/.efs-stunnel/owners/ns/.nfs0002", "/.efs-stunnel/owners/ns/data/note", "/.efs-stunnel/owners/ns/link")
	w.done(setupOf(b, "/ns"))
}

// What something is shows when it is removed: each kind goes, links lead nowhere, and all is
// counted.
func TestSweepOfEveryKind(t *testing.T) {
	for _, workers := range []int{1, 8} {
		w := newFixture(t)
		a := owner("c1", "ns", 1)
		w.done(setupOf(a, "/ns/data"))
		w.write("/outside/sub/file", "precious")
		const count = 12 // full, sub, file, again, file, three links and a pipe, two directories, the top
		w.write("/ns/data/full/sub/file", "x")
		w.write("/ns/data/file", "x")
		w.link("../../outside", "/ns/data/link")
		w.link("../../outside/sub/file", "/ns/data/linked file")
		w.link("nowhere", "/ns/data/dangling")
		w.link("link", "/ns/data/full/again")
		for _, dir := range []string{"/ns/data/empty", "/ns/data/locked"} {
			if err := os.Mkdir(w.path(dir), 0o300); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(w.path("/ns/data/pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.done(cleanupOf(a, "/ns/data"))
		outside := w.dump()["outside/sub/file"]
		if swept := w.sweep(0); swept.Removed != count || swept.Volumes != 1 {
			t.Errorf("%d workers: %+v, want %d removals", workers, swept, count)
		}
		if got := w.dump()["outside/sub/file"]; got != outside {
			t.Errorf("outside is %q, want %q", got, outside)
		}
		w.wantEmptyTrash()
	}
}
