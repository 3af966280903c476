package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func TestSetupMakesTheDirectory(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	op := setupOf(a, "/ns/deep/data")
	op.Mode, op.UID, op.GID = "1750", 1000, 1001
	w.done(op)

	info, err := os.Stat(w.path("/ns/deep/data"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeDir|os.ModeSticky|0o750 {
		t.Errorf("the mode is %v", info.Mode())
	}
	if os.Getuid() == 0 && (fsroot.UserOf(info) != 1000 || fsroot.GroupOf(info) != 1001) {
		t.Errorf("the owner is %d:%d", fsroot.UserOf(info), fsroot.GroupOf(info))
	}
	for _, p := range []string{"/ns", "/ns/deep"} {
		if info, err := os.Stat(w.path(p)); err != nil || info.Mode() != os.ModeDir|0o755 {
			t.Errorf("%s is %v (%v)", p, info.Mode(), err)
		}
	}
	got := w.entry("/ns/deep/data", a.Volume)
	want := map[string]any{
		"cluster": "c1", "namespace": "ns", "claim": "claim-1", "claimUID": "c1-ns-1",
		"made": true, "when": "2026-01-02T03:04:05Z",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger has %v, want %v", got, want)
	}
}

func TestSetupIsIdempotent(t *testing.T) {
	w := newFixture(t)
	op := setupOf(owner("c1", "ns", 1), "/ns/data")
	w.done(op)
	if err := os.Chmod(w.path("/ns/data"), 0o711); err != nil { // the tenant's own business
		t.Fatal(err)
	}
	w.write("/ns/data/file", "x")
	before := w.dump()
	w.now = w.now.Add(1)
	w.done(op)
	if diff := difference(before, w.dump()); diff != "" {
		t.Error(diff)
	}
}

func TestSetupDefaultMode(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c1", "ns", 1), "/ns/data"))
	if info, err := os.Stat(w.path("/ns/data")); err != nil || info.Mode() != os.ModeDir|0o777 {
		t.Errorf("%v (%v)", info.Mode(), err)
	}
}

func TestSetupRefusals(t *testing.T) {
	taken := setupOf(owner("c1", "ns", 1), "/ns/data")
	other := owner("c1", "ns", 2)
	foreign := owner("c1", "ns2", 1)
	cluster := owner("c2", "ns", 1)
	share := func(op operations.Operation, namespaces, clusters bool) operations.Operation {
		op.ShareAcrossNamespaces, op.ShareAcrossClusters = namespaces, clusters
		return op
	}
	refuseExisting := func(op operations.Operation) operations.Operation {
		op.RefuseExisting = true
		return op
	}
	tests := map[string]struct {
		op     operations.Operation
		reason operations.Reason // empty is success
	}{
		"the same namespace shares":               {setupOf(other, "/ns/data"), ""},
		"another namespace does not":              {setupOf(foreign, "/ns/data"), operations.OwnedByOtherNamespace},
		"unless it may":                           {share(setupOf(foreign, "/ns/data"), true, false), ""},
		"another cluster does not":                {setupOf(cluster, "/ns/data"), operations.OwnedByOtherCluster},
		"unless that may":                         {share(setupOf(cluster, "/ns/data"), false, true), ""},
		"another cluster's namespace needs both":  {share(setupOf(owner("c2", "ns2", 1), "/ns/data"), false, true), operations.OwnedByOtherNamespace},
		"and may with both":                       {share(setupOf(owner("c2", "ns2", 1), "/ns/data"), true, true), ""},
		"below a volume is refused":               {share(setupOf(other, "/ns/data/sub"), true, true), operations.Nested},
		"deep below a volume is refused":          {share(setupOf(other, "/ns/data/sub/sub"), true, true), operations.Nested},
		"above a volume is refused":               {share(setupOf(other, "/ns"), true, true), operations.Nested},
		"a name that only starts alike is not":    {setupOf(other, "/ns/data2"), ""},
		"unowned data is taken over":              {setupOf(other, "/old/data"), ""},
		"unless the class refuses":                {refuseExisting(setupOf(other, "/old/data")), operations.NotEmptyUnowned},
		"an empty one is taken all the same":      {refuseExisting(setupOf(other, "/old/empty")), ""},
		"an owned one with data can be joined":    {refuseExisting(setupOf(other, "/ns/data")), ""},
		"a file is refused":                       {setupOf(other, "/old/data/file"), operations.NotADirectory},
		"a path through a file is refused":        {setupOf(other, "/old/data/file/x"), operations.NotADirectory},
		"a link is refused":                       {setupOf(other, "/old/link"), operations.SymlinkInPath},
		"a path through a link is refused":        {setupOf(other, "/old/link/x"), operations.SymlinkInPath},
		"a dangling link is refused":              {setupOf(other, "/old/dangling"), operations.SymlinkInPath},
		"an absolute link is refused":             {setupOf(other, "/old/absolute/x"), operations.SymlinkInPath},
		"a bad path is refused":                   {setupOf(other, "/ns/../x"), operations.BadPath},
		"an unknown kind is refused":              {operations.Operation{Kind: "format", Owner: other, Path: "/x"}, operations.BadOperation},
		"no cluster is refused":                   {setupOf(operations.Owner{Volume: "v", Namespace: "n", Claim: "c", ClaimUID: "u"}, "/x"), operations.BadOperation},
		"a volume with a slash is refused":        {setupOf(operations.Owner{Volume: "../v", Cluster: "c", Namespace: "n", Claim: "c", ClaimUID: "u"}, "/x"), operations.BadOperation},
		"a volume that seems to leave is refused": {setupOf(operations.Owner{Volume: "v.leaving", Cluster: "c", Namespace: "n", Claim: "c", ClaimUID: "u"}, "/x"), operations.BadOperation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.write("/ns/data/precious", "1")
			if err := os.RemoveAll(w.path("/ns")); err != nil {
				t.Fatal(err)
			}
			w.done(taken)
			w.write("/ns/data/precious", "1")
			w.write("/old/data/file", "2")
			if err := os.Mkdir(w.path("/old/empty"), 0o700); err != nil {
				t.Fatal(err)
			}
			w.link("../ns/data", "/old/link")
			w.link("nowhere", "/old/dangling")
			w.link(w.dir, "/old/absolute")
			before := w.dump()
			if tt.reason == "" {
				w.do(tt.op, operations.Done, "")
				return
			}
			result := w.do(tt.op, operations.Failed, tt.reason)
			if diff := difference(before, w.dump()); diff != "" {
				t.Errorf("the refusal changed something:\n%s", diff)
			}
			if result.Message == "" || strings.Contains(result.Message, "%!") {
				t.Errorf("the message is %q", result.Message)
			}
			owned := slices.Contains([]operations.Reason{operations.Nested, operations.OwnedByOtherCluster, operations.OwnedByOtherNamespace}, tt.reason)
			if owned && (len(result.Owners) != 1 || result.Owners[0] != taken.Owner) {
				t.Errorf("the owners are %+v, want %+v", result.Owners, taken.Owner)
			}
		})
	}
}

func TestSetupKeepsWhatIsThere(t *testing.T) {
	w := newFixture(t)
	w.write("/ns/data/file", "x")
	if err := os.Chmod(w.path("/ns/data"), 0o711); err != nil {
		t.Fatal(err)
	}
	op := setupOf(owner("c1", "ns", 1), "/ns/data")
	op.Mode, op.UID = "0700", 5
	before, _ := os.Stat(w.path("/ns/data"))
	w.done(op)
	after, _ := os.Stat(w.path("/ns/data"))
	if before.Mode() != after.Mode() || fsroot.UserOf(before) != fsroot.UserOf(after) {
		t.Errorf("%v became %v", before, after)
	}
	if made, ok := w.entry("/ns/data", op.Volume)["made"]; ok {
		t.Errorf("made is %v", made)
	}
}

func TestAdopt(t *testing.T) {
	w := newFixture(t)
	o := owner("c1", "ns", 1)
	o.Volume = "old.volume" // the original system's have any name
	op := setupOf(o, "/ns/data")
	op.Adopt, op.Made = true, true
	w.do(op, operations.Failed, operations.NotFound)
	w.gone("/ns", "/.efs-stunnel/owners/ns")

	w.write("/ns/data/file", "x")
	w.done(op)
	if w.entry("/ns/data", o.Volume)["made"] != true {
		t.Error("the original's directory is not ours to take away")
	}

	again := op // the name is given to another claim, after the first one is gone
	again.ClaimUID = "another"
	w.done(again)
	again.Cluster = "c2"
	again.ShareAcrossClusters = true
	w.do(again, operations.Failed, operations.VolumeNameTaken)

	w.do(cleanupOf(operations.Owner{Volume: o.Volume, Cluster: "c1", Namespace: "ns", Claim: o.Claim, ClaimUID: "another"}, "/ns/data"), operations.Done, operations.Retained)
	w.there("/ns/data/file") // as the first claim left it
}

func TestCleanupOfAnAdoptedDirectory(t *testing.T) {
	w := newFixture(t)
	w.write("/ns/data/file", "x")
	op := setupOf(owner("c1", "ns", 1), "/ns/data")
	op.Adopt, op.Made = true, true
	w.done(op)
	w.done(cleanupOf(op.Owner, op.Path))
	w.there("/.efs-stunnel/trash/" + op.Volume + "/file")
}

// Whose the data is: a namespace with the same name as a deleted one is another namespace, and
// what was retained is for claims of its own class.
func TestRecreatedNamespaceDoesNotGetTheOldData(t *testing.T) {
	of := func(n int, namespaceUID, class string) operations.Owner {
		o := owner("c1", "ns", n)
		o.NamespaceUID, o.Class = namespaceUID, class
		return o
	}
	tests := map[string]struct {
		first, next       operations.Owner
		whileOwned, after operations.Reason // of the setup, while the first volume is in use and once it is only remembered
	}{
		"same namespace and class":      {of(1, "u1", "x"), of(2, "u1", "x"), "", ""},
		"namespace made again":          {of(1, "u1", "x"), of(2, "u2", "x"), operations.OwnedByOtherNamespace, operations.OwnedByOtherNamespace},
		"entry without a uid":           {of(1, "", "x"), of(2, "u2", "x"), "", ""},
		"operation without a uid":       {of(1, "u1", "x"), of(2, "", "x"), "", ""},
		"another class":                 {of(1, "u1", "x"), of(2, "u1", "y"), "", operations.OwnedByOtherClass},
		"entry without a class":         {of(1, "u1", ""), of(2, "u1", "y"), "", ""},
		"operation without a class":     {of(1, "u1", "x"), of(2, "u1", ""), "", ""},
		"another cluster, its own uids": {of(1, "u1", "x"), operations.Owner{Volume: "pvc-z", Cluster: "c2", Namespace: "ns", Claim: "z", ClaimUID: "z", NamespaceUID: "u2", Class: "x"}, "", ""},
	}
	for name, tt := range tests {
		for when, want := range map[string]operations.Reason{"while owned": tt.whileOwned, "remembered": tt.after, "retained": tt.after} {
			t.Run(name+", "+when, func(t *testing.T) {
				w := newFixture(t)
				w.done(setupOf(tt.first, "/ns/data"))
				if when == "retained" {
					w.done(releaseOf(tt.first, "/ns/data"))
				}
				op := setupOf(tt.next, "/ns/data")
				op.ShareAcrossClusters = tt.next.Cluster != tt.first.Cluster
				op.Joins = when == "while owned"
				state := operations.Done
				if want != "" {
					state = operations.Failed
				}
				result := w.do(op, state, want)
				if want == operations.OwnedByOtherNamespace && !strings.Contains(result.Message, "deleted and made again") || want != "" && !strings.Contains(result.Message, "share_across_namespaces") {
					t.Errorf("the message does not say what to do: %s", result.Message)
				}
				op.ShareAcrossNamespaces = true
				w.done(op)
			})
		}
	}
}

// TestClaimsOfTwoClassesInOneBatchShare: the manager cannot know yet that the first will be in use.
func TestClaimsOfTwoClassesInOneBatchShare(t *testing.T) {
	w := newFixture(t)
	first, second := owner("c1", "ns", 1), owner("c1", "ns", 2)
	first.Class, second.Class = "x", "y"
	for i, result := range w.run(setupOf(first, "/ns/data"), setupOf(second, "/ns/data")) {
		if result.State != operations.Done {
			t.Errorf("setup %d ends as %+v", i, result)
		}
	}
}

func TestRestoreToARecreatedNamespaceIsRefused(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	a.NamespaceUID, b.NamespaceUID = "u1", "u2"
	w.done(setupOf(a, "/ns/data"))
	w.done(cleanupOf(a, "/ns/data"))
	op := restoreOf(b, "/ns/new", a.ClaimUID)
	if result := w.do(op, operations.Failed, operations.OwnedByOtherNamespace); !strings.Contains(result.Message, "share_across_namespaces") {
		t.Error(result.Message)
	}
	op.ShareAcrossNamespaces = true
	w.done(op)
}

// An entry of an earlier version has neither the namespace's uid nor the class. Its own volume's
// setup is repeated as before, and fills them in.
func TestSetupFillsInFieldsThatAnEarlierVersionLacked(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	a.NamespaceUID, a.Class = "u1", "x"
	w.done(setupOf(a, "/ns/data"))
	if e := w.entry("/ns/data", a.Volume); e["namespaceUID"] != "u1" || e["class"] != "x" {
		t.Errorf("the entry is %v", e)
	}
	a.NamespaceUID, a.Class = "", ""
	w.done(setupOf(a, "/ns/data")) // what is known stays
	if e := w.entry("/ns/data", a.Volume); e["namespaceUID"] != "u1" || e["class"] != "x" {
		t.Errorf("the entry is %v", e)
	}
}

func TestUnknownFieldsOfAnOwnerSurvive(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	file := ".efs-stunnel/owners/ns/data/@" + b.Volume
	w.write(file, `{"cluster":"c1","namespace":"ns","claim":"claim-2","claimUID":"c1-ns-2","when":"2026-01-02T03:04:05Z","quota":{"bytes":7}}`)
	op := cleanupOf(a, "/ns/data")
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	got := w.entry("/ns/data", b.Volume)
	if fmt.Sprint(got["quota"]) != "map[bytes:7]" || got["made"] != true {
		t.Errorf("the entry of the other owner is %v", got)
	}
}

func TestDamagedOwnerStopsThePathOnly(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	for _, content := range []string{"", "{", "[]", `{"cluster":""}`, "\x00\xff"} {
		w.write(filepath.Join(".efs-stunnel/owners/ns/data", "@pvc-damaged"), content)
		w.do(cleanupOf(a, "/ns/data"), operations.Failed, operations.LedgerDamaged)
		w.there("/ns/data", ".efs-stunnel/owners/ns/data/@"+a.Volume)
	}
	w.done(setupOf(owner("c1", "ns", 3), "/ns/other"))
}

// A path whose directory could not be made keeps no other volume away.
func TestFailedSetupLeavesNoOwner(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "other", 1)
	f := w.open(func(step string) error {
		if step == "place /ns/data" {
			w.write("/ns/data", "a file, just now")
		}
		return nil
	})
	result := batch.Run(t.Context(), f, []operations.Operation{setupOf(a, "/ns/data")}, batch.Options{}).Results[0]
	f.Close()
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.gone("/.efs-stunnel/owners/ns")
	if err := os.Remove(w.path("/ns/data")); err != nil {
		t.Fatal(err)
	}
	w.done(setupOf(b, "/ns/data"))
}
