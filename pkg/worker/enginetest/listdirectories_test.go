package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

func (w *fixture) list(wanted requests.Directories) ([]requests.Directory, error) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	var all []requests.Directory
	err := f.ListDirectories(w.t.Context(), wanted, func(d requests.Directory) error {
		all = append(all, d)
		return nil
	})
	return all, err
}

func TestListOfDirectories(t *testing.T) {
	w := newFixture(t)
	w.write("/legacy/a/inside/file", "x")
	w.write("/legacy/b/inside/file", "x")
	w.write("/legacy/file", "x")
	w.write("/top/x", "x")
	w.link("a", "/legacy/link")
	w.link("/", "/escape")
	w.done(setupOf(owner("c1", "ns", 1), "/ns/a"))
	before := w.dump()
	tests := map[string]struct {
		wanted requests.Directories
		want   []string // paths, with ! before those that have a problem
	}{
		"all of a directory":       {requests.Directories{Patterns: []string{"/legacy/*"}}, []string{"/legacy/a", "/legacy/b", "!/legacy/link"}},
		"at the top":               {requests.Directories{Patterns: []string{"/*"}}, []string{"!/escape", "/legacy", "/ns", "/top"}},
		"two patterns in a path":   {requests.Directories{Patterns: []string{"/l*/*/ins?de"}}, []string{"/legacy/a/inside", "/legacy/b/inside", "!/legacy/link"}},
		"a class of characters":    {requests.Directories{Patterns: []string{"/legacy/[ac]"}}, []string{"/legacy/a"}},
		"nothing":                  {requests.Directories{Patterns: []string{"/none/*", "/legacy/x*"}}, nil},
		"below a link":             {requests.Directories{Patterns: []string{"/legacy/link/*", "/escape/*"}}, []string{"!/escape", "!/legacy/link"}},
		"below a file":             {requests.Directories{Patterns: []string{"/legacy/file/*"}}, []string{"!/legacy/file"}},
		"the ledger":               {requests.Directories{Patterns: []string{"/.efs-stunnel/*"}}, nil},
		"paths":                    {requests.Directories{Paths: []string{"/legacy/a", "/legacy/none", "/legacy/file", "/legacy/link/inside", "/none/a"}}, []string{"/legacy/a", "!/legacy/file", "!/legacy/link/inside", "!/legacy/none", "!/none/a"}},
		"a path with a star":       {requests.Directories{Paths: []string{"/legacy/*"}}, []string{"!/legacy/*"}},
		"paths that no volume has": {requests.Directories{Paths: []string{"/", "/legacy/../legacy/a", "/.efs-stunnel/trash"}}, []string{"!/", "!/.efs-stunnel/trash", "!/legacy/../legacy/a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := w.list(tt.wanted)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range found {
				mark := ""
				if d.Problem != "" {
					mark = "!"
				}
				got = append(got, mark+d.Path)
			}
			slices.SortFunc(got, func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "!"), strings.TrimPrefix(b, "!")) })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("a list has changed something:\n%s", diff)
	}
}

func TestListOfHostileDirectories(t *testing.T) {
	w := newFixture(t)
	hostile := []string{"a\nb", "esc\x1b[2J", "bad\xff\xfe", "back\\slash", "@mark", strings.Repeat("x", 255)}
	for _, name := range hostile {
		if err := os.MkdirAll(filepath.Join(w.dir, "legacy", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found, err := w.list(requests.Directories{Patterns: []string{"/legacy/*"}})
	if err != nil || len(found) != len(hostile) {
		t.Fatalf("%d directories, %v", len(found), err)
	}
	for _, d := range found {
		if !utf8.ValidString(d.Path+d.Problem) || strings.ContainsAny(d.Problem, "\n\x1b") {
			t.Errorf("%+q: %+q", d.Path, d.Problem)
		}
		if want := len(d.Path) == len("/legacy/")+255; (d.Problem == "") != want {
			t.Errorf("%+q: %+q", d.Path, d.Problem)
		}
	}
}

func TestListOfDirectoriesIsBounded(t *testing.T) {
	w := newFixture(t)
	for n := range requests.MaxDirectories + 1 {
		if err := os.MkdirAll(w.path(fmt.Sprintf("/legacy/%d", n)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found, err := w.list(requests.Directories{Patterns: []string{"/legacy/*"}})
	if err == nil || !strings.Contains(err.Error(), "narrower pattern") || len(found) != requests.MaxDirectories {
		t.Errorf("%d directories, %v", len(found), err)
	}
}

func TestListOfDirectoriesHasTheirGroups(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.write("/legacy/a/file", "x")
	if err := os.Chown(w.path("/legacy/a"), 7, 2000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path("/legacy/a"), 0o771|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	found, err := w.list(requests.Directories{Paths: []string{"/legacy/a"}})
	if diff := cmp.Diff([]requests.Directory{{Path: "/legacy/a", UID: 7, GID: 2000, Setgid: true}}, found); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
