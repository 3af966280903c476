package enginetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// hostile makes operations of what has broken other provisioners, and of chance.
type hostile struct{ rand *rand.Rand }

func (h hostile) pick(from ...string) string { return from[h.rand.IntN(len(from))] }

func (h hostile) component() string {
	if h.rand.IntN(8) == 0 {
		junk := make([]byte, h.rand.IntN(300))
		for i := range junk {
			junk[i] = byte(h.rand.IntN(256))
		}
		return string(junk)
	}
	return h.pick("..", ".", "", "...", "..\x00", "../..", `..\..`, "%2e%2e", "．．", "victim", "data", "sub", "link",
		"up", "outside", ".efs-stunnel", "owners", "trash", "tmp", "lock", "file-system-id", "@pvc-c1-victim-1",
		"@@sweeping", "$(rm -rf /)", "`id`", "a\nb", "a\rb", "-rf", "~", "*", "CON", "\u202e", "\u2028", "a b",
		strings.Repeat("x", 255), strings.Repeat("x", 256), "\xff\xfe", "ns", "ns2")
}

func (h hostile) path() string {
	if h.rand.IntN(2) == 0 { // a path that passes, to somewhere that matters
		parts := make([]string, 1+h.rand.IntN(4))
		for i := range parts {
			parts[i] = h.pick("victim", "data", "sub", "link", "up", "outside", "file", "fs", "ns", "old", "efs-stunnel")
		}
		return "/" + strings.Join(parts, "/")
	}
	parts := make([]string, 1+h.rand.IntN(6))
	for i := range parts {
		parts[i] = h.component()
	}
	return h.pick("/", "/", "/", "/", "", "//", "./", "../") + strings.Join(parts, "/")
}

func (h hostile) name() string {
	return h.pick("pvc-c1-evil-1", "pvc-c1-evil-2", "pvc-c1-victim-1", "../pvc", "..", ".", "", "a/b", "@x", "sweeping",
		"x.leaving", "pvc-c1-victim-1.leaving", "a\x00b", "A", strings.Repeat("v", 300), h.component())
}

func (h hostile) owner() operations.Owner {
	if h.rand.IntN(2) == 0 {
		return owner(h.pick("c1", "c2"), h.pick("evil", "ns"), h.rand.IntN(3))
	}
	return operations.Owner{
		Volume: h.name(), Cluster: h.pick("c1", "c2", "", "../c"), Namespace: h.pick("evil", "ns", "", "a/b"),
		Claim: "claim", ClaimUID: h.pick("c1-evil-1", "x", "", "../../x"), NamespaceUID: h.pick("", "u1", "u2", "\n"),
	}
}

func (h hostile) operation() operations.Operation {
	return operations.Operation{
		Kind:  operations.Kind(h.pick("setup", "setup", "cleanup", "cleanup", "release", "restore", "clone", "", "remove")),
		Owner: h.owner(),
		Path:  h.path(),
		Directory: operations.Directory{
			Mode: h.pick("", "", "", "", "0777", "99", "-1", "7777777"), UID: h.rand.IntN(10) - 1, GID: h.rand.IntN(3),
			AllocateGID: h.rand.IntN(8) == 0, GIDMin: h.rand.IntN(5000) - 10, GIDMax: h.rand.IntN(5000),
		},
		Rules:         operations.Rules{ShareAcrossNamespaces: h.rand.IntN(2) == 0, ShareAcrossClusters: h.rand.IntN(2) == 0, RefuseExisting: h.rand.IntN(2) == 0},
		Adopt:         h.rand.IntN(8) == 0,
		Made:          h.rand.IntN(2) == 0,
		Keep:          h.pick("", "0", "forever", "1h", "-1h", "soon"),
		LeaveToOthers: h.rand.IntN(2) == 0,
		Source:        operations.Source{SourcePath: h.path(), SourceVolume: h.name(), SourceClaim: "claim", SourceClaimUID: h.pick("c1-victim-1", "", "x")},
		Abandon:       h.rand.IntN(2) == 0,
		RestoreFrom:   h.pick("", "c1-victim-9", "c1-victim-1", "../owners", "@x", "c1-evil-1"),
	}
}

// No operation changes what is outside of the file system, what another tenant
// has, or what the trash keeps for it.
func TestHostileOperations(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	base := w.dir
	w.write("/outside/data/file", "precious")
	w.dir = filepath.Join(base, "fs")
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	victim, deleted := owner("c1", "victim", 1), owner("c1", "victim", 9)
	w.done(setupOf(victim, "/victim/data"), setupOf(deleted, "/victim/old"))
	w.write("/victim/data/sub/file", "precious")
	w.write("/victim/old/file", "precious")
	w.link("..", "/up")
	w.link(filepath.Join(base, "outside"), "/outside")
	w.link("victim", "/link")
	w.link("../data", "/victim/data/sub/link")
	kept := cleanupOf(deleted, "/victim/old")
	kept.Keep = "forever"
	w.done(kept)

	precious := func() map[string]string {
		all := (&fixture{t: t, dir: base}).dump()
		maps.DeleteFunc(all, func(p, _ string) bool {
			for _, mine := range []string{
				"fs/victim/data", "fs/.efs-stunnel/owners/victim/data/@" + victim.Volume, "fs/.efs-stunnel/file-system-id",
				"fs/.efs-stunnel/trash/NEVER/" + deleted.Volume, "fs/.efs-stunnel/trash/NEVER/@" + deleted.Volume,
				"fs/up", "fs/outside", "fs/link",
			} {
				if p == mine || strings.HasPrefix(p, mine+"/") {
					return false
				}
			}
			return p == "fs" || strings.HasPrefix(p, "fs/") // what is left is the rest of the machine
		})
		return all
	}
	before := precious()
	h := hostile{rand.New(rand.NewPCG(1, 2))}
	states := map[string]int{}
	const total, batch = 12_000, 500
	for range total / batch {
		ops := make([]operations.Operation, batch)
		for i := range ops {
			ops[i] = h.operation()
		}
		for i, result := range w.run(ops...) {
			states[fmt.Sprint(result.State, " ", result.Reason)]++
			if result.State == operations.Done && operations.CheckPath(ops[i].Path) != nil {
				t.Errorf("%+v was done", ops[i])
			}
			if result.State == operations.NotDone || result.Reason == operations.IOError {
				t.Errorf("%+v: %+v", ops[i], result)
			}
		}
		w.sweep(0)
	}
	if diff := difference(before, precious()); diff != "" {
		t.Error(diff)
	}
	t.Log(states)
}
