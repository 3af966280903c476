package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// discarded sets an owner's directory up, with a file, and moves it to the trash.
func (w *fixture) discarded(o operations.Owner, p, keep string) {
	w.t.Helper()
	cleanup := cleanupOf(o, p)
	cleanup.Keep = keep
	w.done(setupOf(o, p))
	w.write(p+"/file", "x")
	w.done(cleanup)
}

func (w *fixture) listTrash() []requests.Trashed {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	var all []requests.Trashed
	err := trash.List(context.Background(), f, func(t requests.Trashed) error {
		all = append(all, t)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *fixture) empty(selection requests.Selection, step func(string) error) (operations.Swept, error) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	f.Step = step
	return trash.Empty(context.Background(), f, selection, treewalk.Options{})
}

func TestListOfTheTrash(t *testing.T) {
	w := newFixture(t)
	if got := w.listTrash(); len(got) > 0 {
		t.Errorf("without a trash: %+v", got)
	}
	a, b, restored := owner("c1", "ns", 1), owner("c2", "other", 2), owner("c1", "ns", 3)
	a.Class, a.NamespaceUID = "efs", "u1"
	w.discarded(a, "/ns/a", "1h")
	w.discarded(b, "/other/b", "forever")
	w.discarded(restored, "/ns/c", "1h")
	w.done(restoreOf(owner("c1", "ns", 4), "/ns/d", restored.ClaimUID))
	w.write("/.efs-stunnel/trash/no-record/file", "")
	w.write("/.efs-stunnel/trash/damaged/file", "")
	w.write("/.efs-stunnel/trash/@damaged", "{")
	w.write("/.efs-stunnel/trash/@no-directory", "{}")
	before := w.dump()
	slotOf := func(o operations.Owner) string { return strings.TrimPrefix(w.slot(o.Volume), "/.efs-stunnel/trash/") }

	want := []requests.Trashed{
		{Slot: "damaged", Unknown: true},
		{Slot: "no-record", Unknown: true},
		{
			Slot: slotOf(a), Volume: a.Volume, Path: "/ns/a", Cluster: "c1", Namespace: "ns", NamespaceUID: "u1", Class: "efs",
			Claim: a.Claim, ClaimUID: a.ClaimUID, Deleted: w.now, Due: w.now.Add(time.Hour),
		},
		{
			Slot: slotOf(b), Volume: b.Volume, Path: "/other/b", Cluster: "c2", Namespace: "other",
			Claim: b.Claim, ClaimUID: b.ClaimUID, Deleted: w.now, Forever: true,
		},
	}
	if diff := cmp.Diff(want, w.listTrash()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("the list has changed something:\n%s", diff)
	}
}

func TestListLimitsWhatRecordsContain(t *testing.T) {
	w := newFixture(t)
	long := strings.Repeat("x", 6000)
	w.write("/.efs-stunnel/trash/a/file", "")
	w.write("/.efs-stunnel/trash/@a", fmt.Sprintf(`{"due":"2026-01-01T00:00:00Z","volume":%q,"path":%q,"owner":{"cluster":%q,"namespace":%q,"claim":%q,"claimUID":%q,"class":%q,"namespaceUID":%q}}`,
		long, long, long, long, long, long, long, long))
	got := w.listTrash()
	if len(got) != 1 || got[0].Unknown || len(got[0].Path) != 1024 || len(got[0].Claim) != 255 || len(fmt.Sprint(got[0])) > 4000 {
		t.Errorf("%+v", got)
	}
}

func TestListRefusesALinkInPlaceOfTheTrash(t *testing.T) {
	w := newFixture(t)
	w.open(nil).Close()
	w.write("/victim/file", "")
	w.link("../victim", "/.efs-stunnel/trash")
	f := w.open(nil)
	defer f.Close()
	err := trash.List(t.Context(), f, func(requests.Trashed) error { return errors.New("listed") })
	if r, ok := fsroot.AsRefusal(err); !ok || r.Reason != operations.SymlinkInPath {
		t.Error(err)
	}
}

func TestEmptyTrash(t *testing.T) {
	const trash = "/.efs-stunnel/trash/"
	own, kept := owner("c1", "ns", 1), owner("c1", "ns", 2)
	other, foreign := owner("c1", "other", 3), owner("c2", "ns", 4)
	all := []operations.Owner{own, kept, other, foreign}
	tests := map[string]struct {
		selection requests.Selection
		removed   []operations.Owner
	}{
		"all of a cluster":    {requests.Selection{Cluster: "c1"}, []operations.Owner{own, kept, other}},
		"a namespace":         {requests.Selection{Cluster: "c1", Namespace: "ns"}, []operations.Owner{own, kept}},
		"a claim":             {requests.Selection{Cluster: "c1", Claims: []string{kept.ClaimUID}}, []operations.Owner{kept}},
		"of another cluster":  {requests.Selection{Cluster: "c2"}, []operations.Owner{foreign}},
		"none of the cluster": {requests.Selection{Cluster: "c3"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			for n, o := range all {
				w.discarded(o, fmt.Sprintf("/%s/%d", o.Namespace, n), []string{"1h", "forever", "", "48h"}[n])
			}
			w.write(trash+"no-record/file", "")
			tt.selection.Until = w.now
			swept, err := w.empty(tt.selection, nil)
			if err != nil || swept.Volumes != len(tt.removed) || swept.Removed != int64(2*len(tt.removed)) {
				t.Errorf("%+v, %v", swept, err)
			}
			w.there(trash + "no-record/file")
			for _, o := range all {
				isRemoved := false
				for _, r := range tt.removed {
					isRemoved = isRemoved || r == o
				}
				if isRemoved {
					w.gone(w.slot(o.Volume), w.slot("@"+o.Volume))
				} else {
					w.there(w.slot(o.Volume)+"/file", w.slot("@"+o.Volume))
				}
			}
		})
	}
}

func TestEmptyTrashLeavesWhatCameAfterTheList(t *testing.T) {
	w := newFixture(t)
	seen, later := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.discarded(seen, "/ns/a", "1h")
	until := w.now
	w.now = w.now.Add(time.Second)
	w.discarded(later, "/ns/b", "1h")
	if _, err := w.empty(requests.Selection{Cluster: "c1", Until: until}, nil); err != nil {
		t.Fatal(err)
	}
	w.gone(w.slot(seen.Volume))
	w.there(w.slot(later.Volume) + "/file")
}

// Between the reading of the records and the lock, a directory can be restored, and its slot be filled again.
func TestEmptyTrashReadsRecordsAgainUnderTheLock(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.discarded(a, "/ns/a", "1h")
	until := w.now
	w.now = w.now.Add(time.Second)
	read, name := 0, w.slot("@"+a.Volume)
	_, err := w.empty(requests.Selection{Cluster: "c1", Until: until}, func(step string) error {
		if step != "read record "+name {
			return nil
		}
		if read++; read == 2 {
			record, err := os.ReadFile(w.path(name))
			if err != nil {
				return err
			}
			later := strings.ReplaceAll(string(record), until.Format(time.RFC3339), w.now.Format(time.RFC3339))
			return os.WriteFile(w.path(name), []byte(later), 0o600)
		}
		return nil
	})
	if err != nil || read != 2 {
		t.Fatal(err, read)
	}
	w.there(w.slot(a.Volume) + "/file")
}

// TestEmptyTrashGoesOn: a run may stop before any step, and the next one, or a sweep, goes on.
func TestEmptyTrashGoesOn(t *testing.T) {
	stop := errors.New("stop")
	for n := 0; ; n++ {
		w := newFixture(t)
		a, b := owner("c1", "ns", 1), owner("c2", "ns", 2)
		w.discarded(a, "/ns/a", "forever")
		w.discarded(b, "/ns/b", "forever")
		selection, steps := requests.Selection{Cluster: "c1", Until: w.now}, 0
		_, err := w.empty(selection, func(string) error {
			if steps++; steps > n {
				return stop
			}
			return nil
		})
		if err != nil && !fsroot.IsStop(err) {
			t.Fatalf("before step %d: %v", n, err)
		}
		if _, again := w.empty(selection, nil); again != nil {
			t.Fatalf("after a stop before step %d: %v", n, again)
		}
		w.gone(w.slot(a.Volume), w.slot("@"+a.Volume))
		w.there(w.slot(b.Volume)+"/file", w.slot("@"+b.Volume))
		if err == nil {
			return
		}
	}
}
