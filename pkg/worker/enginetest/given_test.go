package enginetest

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// given is the owner of namespace a's volume after an administrator has given it to a claim of namespace b.
func given() (before, now operations.Owner) {
	before = owner("c1", "a", 1)
	before.NamespaceUID = "a-uid"
	now = before
	now.Namespace, now.NamespaceUID, now.Claim = "b", "b-uid", "claim"
	return before, now
}

// newGivenVolume is entered again by the manager once the claim is bound.
func newGivenVolume(t *testing.T) (w *fixture, before, now operations.Owner) {
	w = newFixture(t)
	before, now = given()
	w.done(setupOf(before, "/a/data"))
	w.write("/a/data/of-b", "x")
	op := setupOf(now, "/a/data")
	op.Adopt, op.ShareAcrossNamespaces, op.ShareAcrossClusters = true, true, true
	w.done(op)
	return w, before, now
}

func TestVolumeGivenToAnotherNamespaceIsSharedThere(t *testing.T) {
	w, _, now := newGivenVolume(t)
	for namespace, reason := range map[string]operations.Reason{"a": operations.OwnedByOtherNamespace, "b": ""} {
		joins := setupOf(owner("c1", namespace, 2), "/a/data")
		joins.Joins = true
		want := operations.Failed
		if reason == "" {
			want = operations.Done
		}
		w.do(joins, want, reason)
		w.run(cleanupOf(joins.Owner, "/a/data"))
	}
	ledger := w.dump()
	again := setupOf(now, "/a/data")
	again.Adopt = true
	w.done(again)
	if diff := difference(ledger, w.dump()); diff != "" {
		t.Errorf("entered twice, the ledger differs:\n%s", diff)
	}
}

func TestVolumeGivenToAnotherNamespaceIsRestoredThere(t *testing.T) {
	tests := map[string]func(*testing.T) (*fixture, operations.Owner, operations.Owner){
		"entered before its deletion": newGivenVolume,
		"deleted before it was entered": func(t *testing.T) (*fixture, operations.Owner, operations.Owner) {
			w := newFixture(t)
			before, now := given()
			w.done(setupOf(before, "/a/data"))
			w.write("/a/data/of-b", "x")
			now.NamespaceUID = "" // a cleanup has none
			return w, before, now
		},
	}
	for name, setup := range tests {
		t.Run(name, func(t *testing.T) {
			w, before, now := setup(t)
			cleanup := cleanupOf(now, "/a/data")
			cleanup.Keep = "72h"
			w.done(cleanup)
			w.do(restoreOf(owner("c1", "a", 3), "/a/back", before.ClaimUID), operations.Failed, operations.OwnedByOtherNamespace)
			w.done(restoreOf(owner("c1", "b", 3), "/b/back", before.ClaimUID))
			w.there("/b/back/of-b")
		})
	}
}

// TestRetainedDataOfAGivenVolumeIsTheNewNamespaces also where an earlier mark of the volume is.
func TestRetainedDataOfAGivenVolumeIsTheNewNamespaces(t *testing.T) {
	for name, marked := range map[string]bool{"without a mark": false, "with a mark": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			before, now := given()
			w.done(setupOf(before, "/a/data"))
			if marked {
				w.done(releaseOf(before, "/a/data"))
				op := setupOf(before, "/a/data")
				op.Adopt = true
				w.done(op)
			}
			cleanup := cleanupOf(now, "/a/data")
			cleanup.KeepDirectory = true
			w.run(cleanup)
			w.there("/a/data")
			for namespace, reason := range map[string]operations.Reason{"a": operations.OwnedByOtherNamespace, "b": ""} {
				result := w.clone().run(setupOf(owner("c1", namespace, 2), "/a/data"))[0]
				if result.Reason != reason {
					t.Errorf("namespace %s: %+v, want %q", namespace, result, reason)
				}
			}
		})
	}
}
