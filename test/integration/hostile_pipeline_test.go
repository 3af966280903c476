//go:build integration

package integration_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	hostileClaims  = 6000
	hostileVolumes = 6000
	hostileBatch   = 200
	evilTeam       = "evil"
	clusterUID     = "00000000-0000-4000-8000-000000000000"
)

// ground is a file system with victims, and a folder beside it that nothing may touch.
type ground struct {
	*testing.T
	attacker
	root, outside string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{T: t, attacker: newAttacker(seed), root: t.TempDir(), outside: t.TempDir()}
	plant(t, g.root, g.outside)
	victim := operations.Operation{
		Kind: operations.Setup, Path: "/victim/data", Adopt: true, Made: true,
		Owner: operations.Owner{Volume: "pvc-11111111-0000-4000-8000-000000000000", Cluster: clusterUID, Namespace: "victim", Claim: "data", ClaimUID: "11111111-0000-4000-8000-000000000000"},
	}
	if report := g.run(victim); !report.Succeeded() {
		t.Fatalf("the victim has no volume: %+v", report)
	}
	return g
}

// run carries out operations as mountjob does, after they were sent as they are sent to it.
func (g *ground) run(ops ...operations.Operation) operations.Report {
	g.Helper()
	text, err := operations.Encode(ops)
	must(g, err)
	ops, err = operations.Decode(text)
	must(g, err)
	fileSystem, err := directories.Open(g.Context(), g.root, directories.Options{FileSystemID: "fs-1"})
	must(g, err)
	defer fileSystem.Close()
	return fileSystem.Run(g.Context(), ops, nil)
}

func (g *ground) sweep() {
	g.Helper()
	fileSystem, err := directories.Open(g.Context(), g.root, directories.Options{FileSystemID: "fs-1"})
	must(g, err)
	defer fileSystem.Close()
	_, err = fileSystem.Sweep(g.Context(), directories.SweepOptions{})
	must(g, err)
}

// begin takes one hostile claim through all that decides about it. ok is false if it is refused,
// and the class is what it was allowed to do.
func (g *ground) begin() (operation operations.Operation, class volumes.Class, ok bool) {
	g.Helper()
	class, err := volumes.ParseClass(g.class("hostile", wellknown.DefaultProvisioner))
	if err != nil {
		return operation, class, false
	}
	claim, err := volumes.ParseClaim(g.claim(evilTeam, "hostile"), class)
	if err != nil {
		return operation, class, false
	}
	choice, err := volumes.Choose(claim, class, "", []volumes.Candidate{{ID: "fs-1", Port: 20490}})
	if err != nil || choice.FileSystemID == "" {
		return operation, class, false
	}
	operation, err = volumes.Begin(claim, class, choice, clusterUID)
	return operation, class, err == nil
}

// TestHostileClaims takes thousands of them to directories and away again. Nothing is made
// but what the claim's own path needs, and nothing of anybody else's is changed or removed.
func TestHostileClaims(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	accepted, made := 0, 0
	for range hostileClaims / hostileBatch {
		var batch []operations.Operation
		for range hostileBatch {
			if operation, class, ok := g.begin(); ok {
				g.checkPath(operation, class)
				batch = append(batch, operation)
			}
		}
		accepted += len(batch)
		made += g.liveAndLeave(batch)
	}
	t.Logf("%d of %d claims were accepted, %d directories were made", accepted, hostileClaims, made)
	if accepted < hostileClaims/20 || made < hostileClaims/50 {
		t.Errorf("%d accepted and %d directories are too few to tell", accepted, made)
	}
}

// checkPath wants a path to be below the class's base, made of plain components.
func (g *ground) checkPath(operation operations.Operation, class volumes.Class) {
	g.Helper()
	if below, ok := strings.CutPrefix(operation.Path, strings.TrimSuffix(class.BasePath, "/")+"/"); !ok || below == "" {
		g.Errorf("path %q is not below %q", operation.Path, class.BasePath)
	}
	for component := range strings.SplitSeq(operation.Path[1:], "/") {
		if component == "" || component == "." || component == ".." || strings.HasPrefix(component, "@") || len(component) > 255 || strings.ContainsAny(component, "\\\x00\n\r\x7f") {
			g.Errorf("path %q has the component %q", operation.Path, component)
		}
	}
	if operation.Path == wellknown.StateDirectory || strings.HasPrefix(operation.Path, wellknown.StateDirectory+"/") {
		g.Errorf("path %q is ours", operation.Path)
	}
}

// liveAndLeave makes directories and takes them away, and gives the number of those that were
// made.
func (g *ground) liveAndLeave(batch []operations.Operation) (made int) {
	g.Helper()
	before, outside := g.data(), treeOf(g, g.outside)
	report := g.run(batch...)
	var cleanups []operations.Operation
	allowed := map[string]bool{}
	for i, result := range report.Results {
		if result.State != operations.Done {
			continue
		}
		cleanup := batch[i]
		cleanup.Kind, cleanup.Record, cleanup.RestoreFrom, cleanup.LeaveToOthers = operations.Cleanup, nil, "", true
		cleanups = append(cleanups, cleanup)
	}
	for _, operation := range batch { // a refused one may have made what leads to it
		for path := operation.Path; path != "/"; path = filepath.Dir(path) {
			allowed[path] = true
		}
	}
	for path, what := range g.data() {
		switch was, there := before[path]; {
		case there && was != what:
			g.Errorf("%q was %q and is %q", path, was, what)
		case !there && !allowed[path]:
			g.Errorf("%q is new, and nobody's path", path)
		case !there:
			made++
		}
	}
	g.wantAll(before)
	if report := g.run(cleanups...); !report.Succeeded() {
		g.Errorf("not all was cleaned up: %+v", report)
	}
	g.sweep()
	g.wantAll(before)
	if !maps.Equal(outside, treeOf(g, g.outside)) {
		g.Error("something outside of the file system was changed")
	}
	return made
}

// data is all that is not ours, and the victim's entry.
func (g *ground) data() map[string]string {
	g.Helper()
	tree := treeOf(g, g.root)
	maps.DeleteFunc(tree, func(path, _ string) bool {
		ours := path == wellknown.StateDirectory || strings.HasPrefix(path, wellknown.StateDirectory+"/")
		return ours && !strings.HasPrefix(path, wellknown.OwnersDirectory+"/victim/data/@pvc-11111111")
	})
	return tree
}

// wantAll wants everything that was there to be as it was.
func (g *ground) wantAll(before map[string]string) {
	g.Helper()
	now := g.data()
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if now[path] != before[path] {
			g.Errorf("%q was %q and is %q", path, before[path], now[path])
		}
	}
}

// TestHostileVolumes has thousands of forged volumes cleaned up, as far as they are believed.
// Nothing at all may happen: none of them is in the ledger.
func TestHostileVolumes(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	before, outside := g.data(), treeOf(g, g.outside)
	believed := 0
	for range hostileVolumes / hostileBatch {
		var batch []operations.Operation
		for range hostileBatch {
			object := g.volume(wellknown.DefaultProvisioner, "fs-1")
			batch = append(batch, g.cleanupOf(object)...)
		}
		believed += len(batch)
		g.run(batch...)
		g.sweep()
		if after := g.data(); !maps.Equal(before, after) {
			g.wantAll(before)
			t.Fatalf("%d things are there that were %d: %s", len(after), len(before), describe(batch))
		}
	}
	if !maps.Equal(outside, treeOf(t, g.outside)) {
		t.Error("something outside of the file system was changed")
	}
	t.Logf("%d of %d volumes were believed as far as the ledger", believed, hostileVolumes)
	if believed < hostileVolumes/20 {
		t.Errorf("%d cleanups are too few to tell", believed)
	}
}

// cleanupOf is what a volume asks for, also as one whose blockers are to be left behind.
func (g *ground) cleanupOf(object *corev1.PersistentVolume) []operations.Operation {
	g.Helper()
	volume := volumes.Read(object, wellknown.DefaultProvisioner)
	if !volume.NeedsCleanup(nil) {
		return nil
	}
	cleanup := volumes.Cleanup(volume, clusterUID)
	if _, err := operations.Encode([]operations.Operation{cleanup}); err != nil {
		return nil // it is told that it cannot be sent
	}
	cleanup.LeaveToOthers = g.IntN(2) == 0
	return []operations.Operation{cleanup}
}
