package quota

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newLedger(t *testing.T) (l *ledger, folder string) {
	t.Helper()
	folder = t.TempDir()
	root, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &ledger{disk: disk{root}}, folder
}

// enter writes an entry by a rename.
func enter(t *testing.T, folder, path, text string) {
	t.Helper()
	file, fresh := filepath.Join(folder, ".efs-stunnel/owners", path), filepath.Join(folder, "fresh")
	for _, err := range []error{os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, file)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func expectSizes(t *testing.T, l *ledger, now time.Time, want map[string]int64, wantChanged bool) {
	t.Helper()
	sizes, changed, err := l.read(now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, sizes); diff != "" || changed != wantChanged {
		t.Errorf("changed is %v, sizes mismatch (-want +got):\n%s", changed, diff)
	}
}

// TestLargestSizeOfOwnersCounts, and no size of what is no owner.
func TestLargestSizeOfOwnersCounts(t *testing.T) {
	l, folder := newLedger(t)
	for path, text := range map[string]string{
		"ns/shared/@a":                           `{"cluster":"c","size":1024}`,
		"ns/shared/@b":                           `{"cluster":"c","size":4096}`,
		"ns/shared/@c":                           `{"cluster":"c"}`,
		"ns/shared/@reader":                      `{"cluster":"c","reads":true,"size":8192}`,
		"ns/shared/@d.retained":                  `{"cluster":"c","size":8192}`,
		"ns/shared/@e":                           `{`,
		"ns/odd/@a":                              `{"size":1025}`,
		"ns/huge/@a":                             `{"size":9223372036854775807}`,
		"ns/negative/@a":                         `{"size":-512}`,
		"ns/leaving/@a.leaving~20260101T000000Z": `{"size":512}`,
		"ns/kept/@a.retained":                    `{"size":512}`,
		"ns/unknown/@a":                          `{}`,
		"@root":                                  `{"size":512}`,
		"ns/bad\nname/@a":                        `{"size":512}`,
		".efs-stunnel/trash/@a":                  `{"size":512}`,
		"ns/folder/@a/file":                      `{"size":512}`,
	} {
		enter(t, folder, path, text)
	}
	outside := t.TempDir()
	enter(t, outside, "x/@a", `{"size":512}`)
	for link, target := range map[string]string{
		"ns/link":         filepath.Join(outside, ".efs-stunnel/owners/x"),
		"ns/unknown/@own": "../odd/@a",
	} {
		if err := os.Symlink(target, filepath.Join(folder, ".efs-stunnel/owners", link)); err != nil {
			t.Fatal(err)
		}
	}
	expectSizes(t, l, time.Now(), map[string]int64{"/ns/shared": 4096, "/ns/odd": 1536, "/ns/huge": 1 << 60, "/ns/leaving": 512}, true)
}

func TestLedgerIsReadWhenItChanges(t *testing.T) {
	l, folder := newLedger(t)
	later := time.Now().Add(time.Hour)
	expectSizes(t, l, later, map[string]int64{}, false)
	enter(t, folder, "ns/data/@a", `{"size":1024}`)
	enter(t, folder, "ns/other/@a", `{"size":512}`)
	want := map[string]int64{"/ns/data": 1024, "/ns/other": 512}
	expectSizes(t, l, time.Now(), want, true)
	expectSizes(t, l, later, want, true) // it had just changed, and may have again at the same time
	expectSizes(t, l, later, want, false)
	enter(t, folder, "ns/data/@a", `{"size":2048}`)
	want["/ns/data"] = 2048
	expectSizes(t, l, later, want, true)
	if err := os.RemoveAll(filepath.Join(folder, ".efs-stunnel/owners/ns/other")); err != nil {
		t.Fatal(err)
	}
	delete(want, "/ns/other")
	expectSizes(t, l, later, want, true)
	expectSizes(t, l, later, want, false)
}

// TestDirectoriesAreNotFoundBehindLinks of clients.
func TestDirectoriesAreNotFoundBehindLinks(t *testing.T) {
	l, folder := newLedger(t)
	for _, err := range []error{
		os.Mkdir(filepath.Join(folder, "real"), 0o700), os.WriteFile(filepath.Join(folder, "file"), nil, 0o600),
		os.Symlink("real", filepath.Join(folder, "link")), os.Symlink("/", filepath.Join(folder, "root")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/link", "/root/tmp", "/file", "/gone", "/../x"} {
		if _, isThere, err := l.disk.project(path); isThere || err != nil {
			t.Errorf("%s: there is %v, %v", path, isThere, err)
		}
		if err := l.disk.assign(t.Context(), path, firstProject); err == nil {
			t.Errorf("%s: it is assigned", path)
		}
	}
}
