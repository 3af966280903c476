//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// tableWrites also depend on the file systems of other tests in the cluster.
const tableWrites = "/configmaps"

// everyCrash is set by make e2e-long.
var everyCrash = os.Getenv("EFS_STUNNEL_LONG") != ""

// crashPoints are before and after each write from first to last, and without everyCrash before one and after the
// next: after a write is nearly before the next one.
func crashPoints(first, last int, ignore string) []*crash.Point {
	moments := []crash.Moment{crash.Before, crash.After}
	var points []*crash.Point
	for write := first; write <= last; write++ {
		for i, moment := range moments {
			if everyCrash || write%len(moments) == i {
				points = append(points, &crash.Point{Write: write, Moment: moment, Ignore: ignore})
			}
		}
	}
	return points
}

// TestManagerThatCrashesAtItsFirstWrites: of the table, its view, the root volume and the root claim.
// TestManagerThatCrashesAtAnyWrite has the others.
func TestManagerThatCrashesAtItsFirstWrites(t *testing.T) {
	t.Parallel()
	for _, point := range crashPoints(1, 4, "") {
		t.Run(point.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.startManagers(point)
			claim := f.createClaim("data")
			f.waitForBound(claim)
			f.expectVolumes(claim)
			f.deleteClaims(claim)
			f.waitForCleanup(claim)
			f.waitForView()
			t.Log(point)
			if !point.Reached() {
				t.Error("the manager did not write so often")
			}
		})
	}
}

// TestManagerThatCrashesAtAnyWrite: in several scenarios, each of which ends
// as without the crash.
func TestManagerThatCrashesAtAnyWrite(t *testing.T) {
	t.Parallel()
	const firstWrite = 3 // after the root volume and the root claim
	for name, l := range map[string]scenario{
		"two claims of one path": {nil, (*fixture).runTwoClaims},
		"retained":               {(*fixture).useRetainingClass, (*fixture).runRetained},
		"setups that fail":       {(*fixture).blockSetup, (*fixture).runFailures},
		"an original volume":     {(*fixture).createOriginal, (*fixture).runAdopted},
		"growing":                {(*fixture).useExpandableClass, (*fixture).runGrowing},
		"with a worker":          {(*fixture).useWorkers, (*fixture).runWithWorker},
		"an access point":        {func(f *fixture) { f.useDriverClass() }, (*fixture).runAccessPoint},
		"no access point":        {(*fixture).refuseAccessPoints, (*fixture).runGivenUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counting := &crash.Point{Ignore: tableWrites}
			t.Run("without a crash", func(t *testing.T) { l.run(t, counting) })
			writes := len(counting.Writes())
			if writes < firstWrite {
				t.Fatalf("the scenario takes %d writes", writes)
			}
			for _, point := range crashPoints(firstWrite, writes, tableWrites) {
				t.Run(point.String(), func(t *testing.T) {
					t.Parallel()
					l.run(t, point)
					t.Log(point)
				})
			}
		})
	}
}

// scenario is a change of claims, with the expected end.
type scenario struct {
	prepare func(*fixture) // before a manager is started; nil does nothing
	act     func(*fixture)
}

func (l scenario) run(t *testing.T, point *crash.Point) {
	t.Helper()
	f := newFixture(t)
	if l.prepare != nil {
		l.prepare(f)
	}
	f.startManagers(point)
	l.act(f)
}

// runTwoClaims has two claims share a directory, and be deleted one after the other.
func (f *fixture) runTwoClaims() {
	one, other := f.createClaim("one", withVolumeName("shared")), f.createClaim("other", withVolumeName("shared"))
	f.waitForBound(one, other)
	f.expectVolumes(one, other)
	f.deleteClaims(one)
	f.WaitForVolumeDeleted(one)
	if !f.Exists(f.fileSystem, f.Team+"/shared") {
		f.Errorf("the directory was removed with the first of two claims\n%s", f.Dump())
	}
	f.expectVolumes(other)
	f.deleteClaims(other)
	f.waitForCleanupAndSweep(one, other)
}

func (f *fixture) useRetainingClass() { f.class = f.NewClass("retaining", nil, retaining).Name }

// runRetained expects the directory to stay, and the next claim of that name to have it.
func (f *fixture) runRetained() {
	claim := f.createClaim("data", withVolumeName("kept"))
	path := f.waitForBound(claim).Spec.NFS.Path
	f.writeFile(path)
	f.deleteClaims(claim)
	f.waitForReleased(claim)
	f.deleteVolume(volumes.VolumeName(claim.UID))
	f.WaitForVolumeDeleted(claim)
	f.waitForBound(f.createClaim("again", withVolumeName("kept")))
	f.expectFile(path)
}

// blockSetup has a file at the claim's path, and the first Job killed before it reports that.
func (f *fixture) blockSetup() {
	f.check(os.MkdirAll(f.local(f.Team), 0o755))
	f.check(os.WriteFile(f.local(filepath.Join(f.Team, "blocked")), nil, 0o600))
	f.Kubelet.QueueBehavior(kubelet.Behavior{Ending: kubelet.Killed})
}

func (f *fixture) runFailures() {
	claim := f.createClaim("data", withVolumeName("blocked"))
	f.Eventually("a Job has refused it", func(context.Context) error {
		for _, run := range f.Kubelet.Runs() {
			if strings.Contains(run.Message, string(operations.NotADirectory)) {
				return nil
			}
		}
		return fmt.Errorf("%d have run", len(f.Kubelet.Runs()))
	})
	f.check(os.Remove(f.local(filepath.Join(f.Team, "blocked"))))
	f.waitForBound(claim)
	f.expectVolumes(claim)
	f.deleteClaims(claim)
	f.waitForCleanup(claim)
}

// createOriginal creates a claim that is bound to a volume of the original system.
func (f *fixture) createOriginal() {
	f.originalVolume("original", "data")
	f.waitForBound(f.NewClaim("data", f.class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = f.Named("original") }))
}

func (f *fixture) runAdopted() {
	name, path := f.Named("original"), "/"+f.Team+"/original"
	f.waitForVolume(name, "is adopted", func(volume *corev1.PersistentVolume) string {
		if volume.Annotations[wellknown.AnnotationPath] == "" {
			return fmt.Sprintf("it has the annotations %v", volume.Annotations)
		}
		return ""
	})
	if owners := f.owners()[path]; len(owners) != 1 || owners[0] != name {
		f.Errorf("the ledger has the owners %v\n%s", f.owners(), f.Dump())
	}
	f.expectFile(path)
	f.check(f.claims(f.Team).Delete(f.Context(), "data", metav1.DeleteOptions{}))
	f.waitForVolumeDeleted(name)
	f.waitForCleanup()
}

func (f *fixture) useExpandableClass() { f.class = f.NewClass("growing", nil, expandable).Name }

func (f *fixture) runGrowing() {
	claim := f.createClaim("data")
	volume := f.waitForBound(claim)
	f.requestSize(claim, "5Gi")
	f.waitForCapacity(claim, "5Gi")
	f.waitForVolume(volume.Name, "has grown", func(volume *corev1.PersistentVolume) string {
		if size := volume.Spec.Capacity.Storage(); size.String() != "5Gi" {
			return "it has " + size.String()
		}
		return ""
	})
	f.expectVolumes(claim)
	f.deleteClaims(claim)
	f.waitForCleanup(claim)
}
