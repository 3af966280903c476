package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

func (w *fixture) listOwners() []requests.Owned {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	var all []requests.Owned
	err := ledger.ListOwners(w.t.Context(), f, func(o requests.Owned) error {
		all = append(all, o)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// age sets when everything in the ledger was written.
func (w *fixture) age(by time.Duration) {
	w.t.Helper()
	err := filepath.WalkDir(w.path("/.efs-stunnel/owners"), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(p, w.now.Add(-by), w.now.Add(-by))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) release(release requests.Release, step func(string) error) ([]requests.Owned, error) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	f.Step = step
	var all []requests.Owned
	err := batch.ReleaseCluster(w.t.Context(), f, release, w.options(), func(o requests.Owned) error {
		all = append(all, o)
		return nil
	})
	return all, err
}

func TestListOfOwners(t *testing.T) {
	w := newFixture(t)
	if got := w.listOwners(); len(got) > 0 {
		t.Errorf("without a ledger: %+v", got)
	}
	a, b, gone := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c2", "other", 3)
	a.Class, a.NamespaceUID = "efs", "u1"
	w.done(setupOf(a, "/ns/deep/a"), setupOf(b, "/ns/b"), setupOf(gone, "/other/c"))
	w.done(releaseOf(gone, "/other/c"))
	if err := os.Rename(w.path("/.efs-stunnel/owners/ns/b/@"+b.Volume), w.path("/.efs-stunnel/owners/ns/b/@"+b.Volume+".leaving")); err != nil {
		t.Fatal(err)
	}
	w.write("/.efs-stunnel/owners/ns/damaged/@pvc-x", "{")
	w.write("/.efs-stunnel/owners/a-file", "an administrator's")
	w.link("../../ns", "/.efs-stunnel/owners/link")
	before := w.dump()
	want := []requests.Owned{
		{Path: "/ns/b", Volume: b.Volume, Cluster: "c1", Namespace: "ns", Claim: b.Claim, ClaimUID: b.ClaimUID, Made: true, Since: w.now, Leaving: true},
		{Path: "/ns/damaged", Volume: "@pvc-x", Unreadable: true},
		{Path: "/ns/deep/a", Volume: a.Volume, Cluster: "c1", Namespace: "ns", NamespaceUID: "u1", Class: "efs", Claim: a.Claim, ClaimUID: a.ClaimUID, Made: true, Since: w.now},
		{Path: "/other/c", Volume: gone.Volume, Cluster: "c2", Namespace: "other", Claim: gone.Claim, ClaimUID: gone.ClaimUID, Made: true, Since: w.now, Retained: true},
	}
	if diff := cmp.Diff(want, w.listOwners()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("the list has changed something:\n%s", diff)
	}
}

func TestListOfManyOwners(t *testing.T) {
	w := newFixture(t)
	const count = 769
	for n := range count {
		w.write(fmt.Sprintf("/.efs-stunnel/owners/ns/%d/@v", n), `{"cluster":"c1"}`)
	}
	if got := w.listOwners(); len(got) != count {
		t.Errorf("%d of %d", len(got), count)
	}
}

func TestListOfOwnersLimitsWhatEntriesContain(t *testing.T) {
	w := newFixture(t)
	long := strings.Repeat("x", 9000)
	w.write("/.efs-stunnel/owners/a/@v", fmt.Sprintf(`{"cluster":%q,"namespace":%q,"claim":%q,"claimUID":%q,"class":%q,"namespaceUID":%q}`, long, long, long, long, long, long))
	got := w.listOwners()
	if len(got) != 1 || got[0].Unreadable || len(got[0].Cluster) != 255 || len(fmt.Sprint(got[0])) > 2500 {
		t.Errorf("%+v", got)
	}
}

func TestReleaseOfACluster(t *testing.T) {
	w := newFixture(t)
	gone, leaving, removed := owner("c2", "ns", 1), owner("c2", "ns", 2), owner("c2", "ns", 3)
	joined, other := owner("c1", "ns", 4), owner("c1", "ns", 5)
	sharing := setupOf(joined, "/ns/shared")
	sharing.ShareAcrossClusters = true
	w.done(setupOf(gone, "/ns/shared"), sharing, setupOf(leaving, "/ns/leaving"), setupOf(removed, "/ns/removed"), setupOf(other, "/ns/own"))
	w.write("/ns/shared/file", "x")
	if err := os.Rename(w.path("/.efs-stunnel/owners/ns/leaving/@"+leaving.Volume), w.path("/.efs-stunnel/owners/ns/leaving/@"+leaving.Volume+".leaving")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path("/ns/removed")); err != nil {
		t.Fatal(err)
	}
	w.age(2 * requests.FreshMark)
	before := w.dump()

	listed, err := w.release(requests.Release{Cluster: "c2", DryRun: true}, nil)
	if err != nil || len(listed) != 3 || listed[0].Released {
		t.Errorf("%+v, %v", listed, err)
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("a dry run has changed something:\n%s", diff)
	}
	released, err := w.release(requests.Release{Cluster: "c2"}, nil)
	if err != nil || len(released) != 3 || !released[0].Released || !released[1].Released || !released[2].Released {
		t.Errorf("%+v, %v", released, err)
	}
	w.there("/.efs-stunnel/owners/ns/shared/@"+gone.Volume+".retained", "/.efs-stunnel/owners/ns/leaving/@"+leaving.Volume+".retained",
		"/.efs-stunnel/owners/ns/own/@"+other.Volume)
	w.gone("/.efs-stunnel/owners/ns/removed")

	// No other owner inherits the right to remove the directory, although it was made for a volume.
	w.do(cleanupOf(joined, "/ns/shared"), operations.Done, operations.Retained)
	w.there("/ns/shared/file")
	again, err := w.release(requests.Release{Cluster: "c2"}, nil)
	if err != nil || len(again) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestReleaseOfAClusterThatSeemsToLive(t *testing.T) {
	tests := map[string]struct {
		marks func(w *fixture)
		force bool
		want  string // part of the refusal
	}{
		"an owner from yesterday": {func(w *fixture) { w.age(requests.FreshMark - time.Minute) }, false, `an owner of "/ns/a"`},
		"only older ones":         {func(w *fixture) { w.age(requests.FreshMark) }, false, ""},
		"an older one, and a deletion": {func(w *fixture) {
			w.age(2 * requests.FreshMark)
			w.discarded(owner("c2", "ns", 2), "/ns/b", "forever")
		}, false, `the deletion of "/ns/b"`},
		"a deletion of another cluster": {func(w *fixture) {
			w.age(2 * requests.FreshMark)
			w.discarded(owner("c1", "ns", 2), "/ns/b", "forever")
		}, false, ""},
		"forced": {func(w *fixture) { w.age(0) }, true, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			a := owner("c2", "ns", 1)
			w.done(setupOf(a, "/ns/a"))
			tt.marks(w)
			_, err := w.release(requests.Release{Cluster: "c2", Force: tt.force}, nil)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				w.there("/.efs-stunnel/owners/ns/a/@" + a.Volume + ".retained")
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "seems to live") {
				t.Error(err)
			}
			w.there("/.efs-stunnel/owners/ns/a/@" + a.Volume)
		})
	}
}

// TestReleaseOfAHostileEntry: it is not released, and the others are.
func TestReleaseOfAHostileEntry(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c2", "ns", 1), "/ns/a"))
	w.write("/.efs-stunnel/owners/ns/evil\x1b[2J/@pvc-1", `{"cluster":"c2","namespace":"../..","claim":"x","claimUID":"y"}`)
	w.write("/.efs-stunnel/owners/ns/empty/@pvc-1", `{"cluster":"c2"}`)
	w.age(2 * requests.FreshMark)
	released, err := w.release(requests.Release{Cluster: "c2"}, nil)
	if err != nil || len(released) != 3 {
		t.Fatal(released, err)
	}
	for _, o := range released {
		if want := o.Path == "/ns/a"; o.Released != want || (o.Problem == "") != want {
			t.Errorf("%+v", o)
		}
	}
}

// TestReleaseOfAClusterGoesOn: a run may stop before any step, and the next one goes on.
func TestReleaseOfAClusterGoesOn(t *testing.T) {
	stop := errors.New("stop")
	for n := 0; ; n++ {
		w := newFixture(t)
		w.workers = 1
		a, b := owner("c2", "ns", 1), owner("c2", "ns", 2)
		w.done(setupOf(a, "/ns/a"), setupOf(b, "/ns/b"))
		w.age(2 * requests.FreshMark)
		steps := 0
		_, _ = w.release(requests.Release{Cluster: "c2"}, func(string) error {
			if steps++; steps > n {
				return stop
			}
			return nil
		})
		if _, err := w.release(requests.Release{Cluster: "c2"}, nil); err != nil {
			t.Fatalf("after a stop before step %d: %v", n, err)
		}
		w.there("/.efs-stunnel/owners/ns/a/@"+a.Volume+".retained", "/.efs-stunnel/owners/ns/b/@"+b.Volume+".retained", "/ns/a", "/ns/b")
		if steps <= n {
			return
		}
	}
}

// TestWhatAnotherNodeRemovesIsNotListed: NFS has a stale handle of it then, and lists take no lock.
func TestWhatAnotherNodeRemovesIsNotListed(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "gone", 2)
	w.done(setupOf(a, "/ns/a"), setupOf(b, "/gone/b"))
	f := w.open(func(step string) error {
		if step == "enter /.efs-stunnel/owners/gone" {
			return syscall.ESTALE
		}
		return nil
	})
	defer f.Close()
	var listed, counted []string
	err := ledger.ListOwners(t.Context(), f, func(o requests.Owned) error {
		listed = append(listed, o.Path)
		return nil
	})
	surveyErr := usage.Survey(t.Context(), f, usage.Options{Found: func(usage operations.Usage) error {
		counted = append(counted, usage.Path)
		return nil
	}})
	want := []string{"/ns/a"}
	if err := errors.Join(err, surveyErr); err != nil || !slices.Equal(listed, want) || !slices.Equal(counted, want) {
		t.Errorf("listed %q, counted %q, %v; want %q", listed, counted, err, want)
	}
}
