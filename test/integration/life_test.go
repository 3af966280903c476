//go:build integration

package integration_test

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// TestLifeOfAClaimWithACrash has the manager die before and after each of its writes until it serves:
// of the table, the root volume and the root claim. TestRecoveryFromACrashAnywhere has the others.
func TestLifeOfAClaimWithACrash(t *testing.T) {
	const writes = 3
	for _, point := range crashes(1, writes, "") {
		t.Run(point.String(), func(t *testing.T) {
			w := newWorld(t)
			fileSystem := w.NewFileSystem()
			class := w.NewClass("efs", nil)
			startTwice(w, point)
			liveAClaim(w, fileSystem, class.Name)
			t.Log(point)
			if !point.Reached() {
				t.Error("the manager did not write so often")
			}
		})
	}
}

// crashes are before and after each write from first to last, without those to paths to ignore.
func crashes(first, last int, ignore string) []*crash.Point {
	var points []*crash.Point
	for write := first; write <= last; write++ {
		for _, moment := range []crash.Moment{crash.Before, crash.After} {
			points = append(points, &crash.Point{Write: write, Moment: moment, Ignore: ignore})
		}
	}
	return points
}

// liveAClaim makes a claim, has it bound, deletes it, and wants nothing left of it.
func liveAClaim(w *world.World, fileSystem, class string) {
	w.Helper()
	claim, volume := w.AwaitBound(w.NewClaim("data", class))
	path := volume.Annotations[wellknown.AnnotationPath]
	if path == "" || !w.Exists(fileSystem, path) {
		w.Errorf("volume %s has the path %q, which is not there", volume.Name, path)
	}
	if volume.Name != volumes.VolumeName(claim.UID) {
		w.Errorf("claim %s has volume %s", claim.UID, volume.Name)
	}
	if err := w.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(w.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.AwaitVolumeGone(claim)
	if w.Exists(fileSystem, path) {
		w.Errorf("%s is still there\n%s", path, w.Story())
	}
	entry := filepath.Join(wellknown.OwnersDirectory, path, wellknown.OwnerPrefix+volume.Name)
	if w.Exists(fileSystem, entry) {
		w.Errorf("the ledger still has %s\n%s", entry, w.Story())
	}
}
