package enginetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// lostVolume is one of the cluster c2, which is gone.
func lostVolume() operations.Owner { return owner("c2", "ns", 9) }

// takeoverOf makes a lost volume one of the cluster c1, with the right to remove its directory.
func takeoverOf(lost operations.Owner, p string) operations.Operation {
	op := setupOf(lost, p)
	op.Cluster, op.Adopt, op.Made, op.TakeOver = "c1", true, true, lost.Cluster
	return op
}

func TestTakeover(t *testing.T) {
	const p = "/ns/lost"
	lost := lostVolume()
	tests := map[string]struct {
		prepare func(w *fixture)
		edit    func(op *operations.Operation)
		made    any // in the entry of the new owner: true, or nil
		refused string
	}{
		"with the right to remove": {made: true},
		"without that right":       {edit: func(op *operations.Operation) { op.Made = false }},
		"of a directory that was there before": {prepare: func(w *fixture) {
			w.done(releaseOf(lost, p))
			w.remove("/.efs-stunnel/owners/ns/lost/@" + lost.Volume + ".retained")
			w.done(setupOf(lost, p))
		}},
		"again": {prepare: func(w *fixture) { w.done(takeoverOf(lost, p)) }, made: true},
		"again, without the right that it has": {
			prepare: func(w *fixture) { w.done(takeoverOf(lost, p)) },
			edit:    func(op *operations.Operation) { op.Made = false }, made: true,
		},
		"again, with a right that it has not": {prepare: func(w *fixture) {
			op := takeoverOf(lost, p)
			op.Made = false
			w.done(op)
		}},
		"of this cluster": {
			prepare: func(w *fixture) { w.done(takeoverOf(lost, p)) },
			edit:    func(op *operations.Operation) { op.TakeOver = "c1" }, made: true,
		},
		"of retained data": {prepare: func(w *fixture) { w.done(releaseOf(lost, p)) }},
		"of one that leaves": {
			prepare: func(w *fixture) { w.addSuffix("/.efs-stunnel/owners/ns/lost/@"+lost.Volume, ".leaving") },
			refused: "has begun",
		},
		"of a third cluster":                {edit: func(op *operations.Operation) { op.TakeOver = "c3" }, refused: "rename this volume"},
		"of another claim":                  {edit: func(op *operations.Operation) { op.ClaimUID = "u" }, refused: "rename this volume"},
		"of another volume":                 {edit: func(op *operations.Operation) { op.Volume = "pvc-other" }, refused: "the ledger does not have volume"},
		"of another path":                   {edit: func(op *operations.Operation) { op.Path = "/ns/other" }, refused: "the ledger does not have volume"},
		"of data that a person has removed": {prepare: func(w *fixture) { w.remove(p + "/file"); w.remove(p) }, refused: "is not there"},
		"of retained data that this cluster has": {
			prepare: func(w *fixture) {
				w.done(releaseOf(lost, p))
				shared := setupOf(owner("c1", "other", 1), p)
				shared.ShareAcrossClusters, shared.ShareAcrossNamespaces = true, true
				w.done(shared)
			}, refused: "belongs to volume",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.done(setupOf(lost, p))
			w.write(p+"/file", "x")
			w.now = w.now.Add(time.Minute)
			if tt.prepare != nil {
				tt.prepare(w)
			}
			op := takeoverOf(lost, p)
			if tt.edit != nil {
				tt.edit(&op)
			}
			before := w.dump()
			result := w.run(op)[0]
			if tt.refused != "" {
				if result.State != operations.Failed || !strings.Contains(result.Message, tt.refused) {
					t.Errorf("%+v", result)
				}
				if diff := difference(before, w.dump()); diff != "" {
					t.Errorf("it has changed something:\n%s", diff)
				}
				return
			}
			e := w.entry(p, lost.Volume)
			if result.State != operations.Done || e["cluster"] != "c1" || e["made"] != tt.made || e["takenFrom"] != "c2" {
				t.Errorf("%+v, %v", result, e)
			}
			w.there(p + "/file")
		})
	}
}

// TestTakeoverEndsWithTheRightThatWasGiven: a deletion by the new cluster removes what it may remove, and the
// lost cluster, should it come back, nothing.
func TestTakeoverEndsWithTheRightThatWasGiven(t *testing.T) {
	const p = "/ns/lost"
	lost := lostVolume()
	taken := lost
	taken.Cluster = "c1"
	for name, tt := range map[string]struct {
		made   bool
		reason operations.Reason
	}{
		"made": {true, ""}, "not made": {false, operations.NotMade},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.done(setupOf(lost, p))
			w.write(p+"/file", "x")
			op := takeoverOf(lost, p)
			op.Made = tt.made
			w.done(op)
			w.do(cleanupOf(lost, p), operations.Done, operations.StillOwned)
			w.there(p + "/file")
			w.do(cleanupOf(taken, p), operations.Done, tt.reason)
			if tt.made {
				w.gone(p, "/.efs-stunnel/owners/ns")
			} else {
				w.there(p + "/file")
			}
		})
	}
}

func TestRetainedDataStaysRetainedAfterATakeover(t *testing.T) {
	const p = "/ns/lost"
	lost := lostVolume()
	w := newFixture(t)
	w.done(setupOf(lost, p))
	w.write(p+"/file", "x")
	w.done(releaseOf(lost, p), takeoverOf(lost, p))
	taken := lost
	taken.Cluster = "c1"
	w.do(cleanupOf(taken, p), operations.Done, operations.Retained)
	w.there(p+"/file", "/.efs-stunnel/owners/ns/lost/@"+lost.Volume+".retained")
}

// TestSecondTakeover: an interrupted run finds what it has taken over by the cluster from which that was.
func TestSecondTakeover(t *testing.T) {
	const p = "/ns/lost"
	lost := lostVolume()
	w := newFixture(t)
	w.done(setupOf(lost, p))
	w.done(takeoverOf(lost, p))
	again := takeoverOf(lost, p)
	again.Cluster, again.TakeOver = "c3", "c1"
	for range 2 {
		w.done(again)
		if e := w.entry(p, lost.Volume); e["cluster"] != "c3" || e["takenFrom"] != "c1" {
			t.Errorf("%v", e)
		}
	}
}

// TestTakeoverOfASharedDirectory: the volumes share it as before, and the last one removes it.
func TestTakeoverOfASharedDirectory(t *testing.T) {
	const p = "/ns/shared"
	a, b := owner("c2", "ns", 1), owner("c2", "other", 2)
	shared := setupOf(b, p)
	shared.ShareAcrossNamespaces = true
	w := newFixture(t)
	w.done(setupOf(a, p), shared)
	w.done(takeoverOf(b, p), takeoverOf(a, p))
	a.Cluster, b.Cluster = "c1", "c1"
	leave := cleanupOf(a, p)
	leave.LeaveToOthers = true
	w.do(leave, operations.Done, operations.StillOwned)
	w.there(p)
	w.done(cleanupOf(b, p))
	w.gone(p)
}

func (w *fixture) remove(p string) {
	w.t.Helper()
	if err := os.Remove(w.path(p)); err != nil {
		w.t.Fatal(err)
	}
}

// addSuffix renames a file.
func (w *fixture) addSuffix(p, suffix string) {
	w.t.Helper()
	if err := os.Rename(w.path(p), w.path(p)+suffix); err != nil {
		w.t.Fatal(err)
	}
}
