package enginetest

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// TestSizesAreInTheLedger for servers that enforce them. An operation without one changes none.
func TestSizesAreInTheLedger(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	expect := func(p, volume string, want any) {
		t.Helper()
		if got := w.entry(p, volume)["size"]; got != want {
			t.Errorf("the ledger has size %v of volume %s, want %v", got, volume, want)
		}
	}
	sized := func(op operations.Operation, size int64) operations.Operation {
		op.Size = size
		return op
	}
	w.done(setupOf(a, "/ns/unsized"))
	expect("/ns/unsized", a.Volume, nil)
	w.done(sized(setupOf(a, "/ns/data"), 64<<20))
	expect("/ns/data", a.Volume, float64(64<<20))

	grown := sized(setupOf(a, "/ns/data"), 128<<20)
	grown.Adopt, grown.ShareAcrossNamespaces, grown.ShareAcrossClusters = true, true, true
	before := w.entry("/ns/data", a.Volume)
	w.done(grown)
	expect("/ns/data", a.Volume, float64(128<<20))
	if after := w.entry("/ns/data", a.Volume); after["made"] != before["made"] || after["when"] != before["when"] {
		t.Errorf("the entry that has grown is %v, was %v", after, before)
	}
	w.done(setupOf(a, "/ns/data"))
	expect("/ns/data", a.Volume, float64(128<<20))

	w.done(cleanupOf(a, "/ns/data"), sized(restoreOf(b, "/ns/back", a.ClaimUID), 256<<20))
	expect("/ns/back", b.Volume, float64(256<<20))
	w.do(sized(setupOf(a, "/ns/negative"), -1), operations.Failed, operations.BadOperation)
}
