package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

// volumes sets up directories.
func (w *fixture) volumes(paths ...string) {
	w.t.Helper()
	for i, p := range paths {
		w.done(setupOf(owner("c1", "team", i), p))
	}
}

// survey is what a survey finds.
func (w *fixture) survey(o usage.Options) (found []operations.Usage, err error) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	then := o.Found
	o.Found = func(usage operations.Usage) error {
		found = append(found, usage)
		if then != nil {
			return then(usage)
		}
		return nil
	}
	err = usage.Survey(context.Background(), f, o)
	return found, err
}

func (w *fixture) mustSurvey(o usage.Options) []operations.Usage {
	w.t.Helper()
	found, err := w.survey(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// du is what is in a directory without hard links, one entry after the other.
func (w *fixture) du(p string) operations.Usage {
	w.t.Helper()
	usage := operations.Usage{Path: p}
	err := filepath.WalkDir(w.path(p), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		usage.Files++
		usage.Bytes += fsroot.StatOf(info).Blocks * 512
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return usage
}

func pathsOf(found []operations.Usage) (paths []string) {
	for _, usage := range found {
		paths = append(paths, usage.Path)
	}
	return paths
}

func TestSurveyCountsEachVolume(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b", "/team-2/c", "/deep/er/d")
	w.write("/team/a/file", strings.Repeat("x", 10000))
	w.write("/team/a/one/two/three/file", "x")
	for i := range 700 {
		w.write(fmt.Sprintf("/team/b/dir-%d/file-%d", i%7, i), "x")
	}
	w.link("/etc/passwd", "/team-2/c/link")
	w.write("/deep/er/sibling", strings.Repeat("x", 10000)) // of no volume
	if err := os.Truncate(w.path("/team/a/file"), 1<<30); err != nil {
		t.Fatal(err)
	}
	want := []operations.Usage{w.du("/deep/er/d"), w.du("/team/a"), w.du("/team/b"), w.du("/team-2/c")}
	if found := w.mustSurvey(usage.Options{}); !slices.Equal(found, want) {
		t.Errorf("found\n%+v\nwant\n%+v", found, want)
	}
	if sparse := want[1].Bytes; sparse > 1<<20 {
		t.Errorf("the sparse file counts %d bytes", sparse)
	}
}

func TestSurveyReadsTheLedgerOnly(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b", "/team/kept")
	w.write("/.efs-stunnel/owners/team/b/@of-another-cluster", "{}")
	for _, name := range []string{"@x.retained", "note"} {
		w.write(filepath.Join("/.efs-stunnel/owners/team", name), "{}")
	}
	kept := w.path("/.efs-stunnel/owners/team/kept/@" + owner("c1", "team", 2).Volume)
	if err := os.Rename(kept, kept+".retained"); err != nil {
		t.Fatal(err)
	}
	w.write("/team/unowned/file", "x")
	if got, want := pathsOf(w.mustSurvey(usage.Options{})), []string{"/team/a", "/team/b"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestSurveyCountsHardLinksOnce(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b")
	w.write("/team/a/file", strings.Repeat("x", 5000))
	want := w.du("/team/a")
	for i := range 2 {
		if err := os.Link(w.path("/team/a/file"), w.path(fmt.Sprintf("/team/a/link-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if found := w.mustSurvey(usage.Options{}); found[0] != want {
		t.Errorf("found %+v, want %+v", found[0], want)
	}
	if err := os.Link(w.path("/team/a/file"), w.path("/team/b/link")); err != nil {
		t.Fatal(err)
	}
	found := w.mustSurvey(usage.Options{})
	if whole := found[0].Bytes + found[1].Bytes; whole != want.Bytes+w.du("/team/b").Bytes-8192 {
		t.Errorf("the volumes that share a file use %d bytes together", whole)
	}
}

// byComponents is the order of the volumes in a survey.
func byComponents(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// A survey that is killed after any volume is gone on with by the next, which counts each volume once.
func TestSurveyGoesOnWhereTheLastOneEnded(t *testing.T) {
	w := newFixture(t)
	var paths []string
	for _, name := range []string{"a", "a/", "a b", "a-b", "a.b", "b", "ä", "~"} {
		paths = append(paths, "/"+name+"/x", "/z/"+strings.Trim(name, "/")+"/y/data")
	}
	slices.Sort(paths)
	paths = slices.Compact(slices.DeleteFunc(paths, func(p string) bool { return operations.CheckPath(p) != nil }))
	w.volumes(paths...)
	all := pathsOf(w.mustSurvey(usage.Options{}))
	if len(all) != len(paths) || !slices.IsSortedFunc(all, byComponents) {
		t.Fatalf("found %q", all)
	}
	killed := errors.New("killed")
	for n := 1; n <= len(all); n++ {
		left := n
		first, err := w.survey(usage.Options{Found: func(operations.Usage) error {
			if left--; left == 0 {
				return killed
			}
			return nil
		}})
		if !errors.Is(err, killed) || len(first) != n {
			t.Fatalf("found %d volumes, error %v", len(first), err)
		}
		rest := w.mustSurvey(usage.Options{After: first[n-1].Path})
		if got := append(pathsOf(first), pathsOf(rest)...); !slices.Equal(got, all) {
			t.Errorf("ended after %d: found %q", n, got)
		}
	}
}

// The volume after which a survey goes on may have been deleted meanwhile.
func TestSurveyGoesOnAfterAVolumeThatIsGone(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/c")
	for _, after := range []string{"/team/b", "/team/a/x", "/team/a"} {
		if got := pathsOf(w.mustSurvey(usage.Options{After: after})); !slices.Equal(got, []string{"/team/c"}) {
			t.Errorf("after %s: found %q", after, got)
		}
	}
}

func TestSurveyTakesNoLock(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a")
	f := w.open(nil)
	defer f.Close()
	lock, err := f.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if found := w.mustSurvey(usage.Options{}); len(found) != 1 {
		t.Errorf("found %+v", found)
	}
}

func TestSurveyChangesNothing(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b")
	w.write("/team/a/file", "x")
	before := w.dump()
	w.mustSurvey(usage.Options{})
	if d := difference(before, w.dump()); d != "" {
		t.Error(d)
	}
}

// A tenant has replaced directories by links to other tenants' data.
func TestSurveyFollowsNoLink(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b")
	w.write("/team/b/large", strings.Repeat("x", 1<<20))
	w.link("../b", "/team/a/link")
	w.link(".", "/team/a/self")
	want := w.du("/team/a")
	if found := w.mustSurvey(usage.Options{}); found[0] != want || want.Bytes > 1<<19 {
		t.Errorf("found %+v, want %+v", found[0], want)
	}
	if err := os.RemoveAll(w.path("/team/a")); err != nil {
		t.Fatal(err)
	}
	w.link("b", "/team/a")
	found := w.mustSurvey(usage.Options{})
	if found[0].Bytes != 0 || !strings.Contains(found[0].Incomplete, "symbolic link") {
		t.Errorf("found %+v", found[0])
	}
}

func TestSurveyCountsNothingWhereNothingIs(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a")
	if err := os.RemoveAll(w.path("/team/a")); err != nil {
		t.Fatal(err)
	}
	if found := w.mustSurvey(usage.Options{}); len(found) != 1 || found[0] != (operations.Usage{Path: "/team/a"}) {
		t.Errorf("found %+v", found)
	}
}

func TestSurveyOfHostileNamesAndDepths(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b")
	for _, name := range []string{"\xff\xfe", "a\nb", "\x1b[2J", strings.Repeat("x", 255), "@@sweeping", ".efs-stunnel", "-rf"} {
		w.write("/team/a/"+name+"/"+name, "x")
	}
	w.write("/team/b/"+strings.Repeat("d/", 128+20)+"file", "x")
	found := w.mustSurvey(usage.Options{Workers: 3})
	if want := w.du("/team/a"); found[0] != want {
		t.Errorf("found %+v, want %+v", found[0], want)
	}
	// The volume, the levels below it, and the first that is not entered.
	if found[1].Files != 128+2 || !strings.Contains(found[1].Incomplete, "too deep") {
		t.Errorf("found %+v", found[1])
	}
}

// TestSurveyOfDirectoriesThatAreReadInPieces: each name counts once, wherever a piece ends.
func TestSurveyOfDirectoriesThatAreReadInPieces(t *testing.T) {
	w := newFixture(t)
	w.volumes("/team/a", "/team/b")
	for p, depth := range map[string]int{"/team/a": 0, "/team/b": 10} {
		folder := p + strings.Repeat("/d", depth)
		size := 0
		for i := 0; size < 3*(32<<10); i++ {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("x", i%250))
			size += len(name)
			w.write(folder+"/"+name, "x")
		}
	}
	if found, want := w.mustSurvey(usage.Options{}), []operations.Usage{w.du("/team/a"), w.du("/team/b")}; !slices.Equal(found, want) {
		t.Errorf("found\n%+v\nwant\n%+v", found, want)
	}
}

func TestVolumeThatTakesTooLongIsIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.volumes("/team/a", "/team/b")
		for i := range 500 {
			w.write(fmt.Sprintf("/team/a/%d", i), "x")
		}
		f := w.open(nil)
		defer f.Close()
		withLatency(f)
		var found []operations.Usage
		err := usage.Survey(t.Context(), f, usage.Options{Workers: 1, VolumeTime: time.Second, Found: func(usage operations.Usage) error {
			found = append(found, usage)
			return nil
		}})
		if err != nil || len(found) != 2 {
			t.Fatalf("found %+v, error %v", found, err)
		}
		if found[0].Incomplete == "" || found[0].Files < 100 || found[0].Files > 300 || found[1].Incomplete != "" {
			t.Errorf("found %+v", found)
		}
	})
}
