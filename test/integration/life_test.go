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

// TestLifeOfAClaim is what everything else is a deviation from.
func TestLifeOfAClaim(t *testing.T) {
	w := newWorld(t)
	fileSystem := w.NewFileSystem()
	class := w.NewClass("efs", nil)
	startManager(w, nil)
	liveAClaim(w, fileSystem, class.Name)
	w.AwaitJobsUsed() // which takes until the trash is swept
}

// TestLifeOfAClaimWithACrash has the manager die before and after each of its writes. Nothing
// of that may be seen in the end.
func TestLifeOfAClaimWithACrash(t *testing.T) {
	err := crash.Everywhere(maxWrites, func(point *crash.Point) {
		t.Run(point.String(), func(t *testing.T) {
			w := newWorld(t)
			fileSystem := w.NewFileSystem()
			class := w.NewClass("efs", nil)
			startTwice(w, point)
			liveAClaim(w, fileSystem, class.Name)
			t.Log(point)
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// maxWrites is about twice what one claim's life takes.
const maxWrites = 40

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
