//go:build integration

package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// claimsWorld is a world where a manager serves one file system and the class "efs".
type claimsWorld struct {
	*world.World
	fileSystem string
	class      string
}

// newClaimsWorld has one file system and a class without parameters.
func newClaimsWorld(t *testing.T, edits ...func(*loops.Options)) *claimsWorld {
	t.Helper()
	w := newWorld(t)
	s := &claimsWorld{World: w, fileSystem: w.NewFileSystem(), class: w.NewClass("efs", nil).Name}
	startManager(w, nil, edits...)
	return s
}

// boundVolume is a claim with its volume, as they were when the claim was bound.
type boundVolume struct {
	claim  *corev1.PersistentVolumeClaim
	object *corev1.PersistentVolume
	path   string
}

// bound makes a claim of a class and waits for its volume.
func (s *claimsWorld) bound(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) boundVolume {
	s.Helper()
	return s.await(s.NewClaim(name, class, edits...))
}

// await waits for a claim's volume and its directory, which must be there by then.
func (s *claimsWorld) await(claim *corev1.PersistentVolumeClaim) boundVolume {
	s.Helper()
	claim, object := s.AwaitBound(claim)
	v := boundVolume{claim: claim, object: object, path: object.Annotations[wellknown.AnnotationPath]}
	id := object.Annotations[wellknown.AnnotationFileSystemID]
	if v.path == "" || object.Spec.NFS == nil || object.Spec.NFS.Path != v.path || !s.Exists(id, v.path) {
		s.Errorf("volume %s has the path %q on %s, which is not right\n%s", object.Name, v.path, id, s.Story())
	}
	return v
}

// called is the label with which claims share a directory.
func called(volumeName string) func(*corev1.PersistentVolumeClaim) {
	return world.WithLabels(map[string]string{wellknown.LabelVolumeName: volumeName})
}

func retaining(class *storagev1.StorageClass) {
	policy := corev1.PersistentVolumeReclaimRetain
	class.ReclaimPolicy = &policy
}

func waitingForConsumers(class *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
}

// see reads a claim as it is now.
func (s *claimsWorld) see(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	s.Helper()
	found, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(s.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return found
}

func (s *claimsWorld) deleteClaims(claims ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	for _, claim := range claims {
		if err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(s.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *claimsWorld) deleteVolume(name string) {
	s.Helper()
	if err := s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// awaitVolume waits until a volume is as it should be; lacks says what is missing, or "".
func (s *claimsWorld) awaitVolume(name, what string, lacks func(*corev1.PersistentVolume) string) *corev1.PersistentVolume {
	s.Helper()
	var object *corev1.PersistentVolume
	s.Eventually("volume "+name+" "+what, func(ctx context.Context) (err error) {
		object, err = s.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if missing := lacks(object); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		return nil
	})
	return object
}

// awaitPhase waits for what the cluster's binder makes of a volume.
func (s *claimsWorld) awaitPhase(name string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	s.Helper()
	return s.awaitVolume(name, "is "+string(phase), func(object *corev1.PersistentVolume) string {
		if object.Status.Phase != phase {
			return "it is " + string(object.Status.Phase)
		}
		return ""
	})
}

// annotate merges annotations into a claim; nil takes one away.
func (s *claimsWorld) annotate(claim *corev1.PersistentVolumeClaim, annotations map[string]any) {
	s.Helper()
	s.patchClaim(claim, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

func (s *claimsWorld) label(claim *corev1.PersistentVolumeClaim, labels map[string]any) {
	s.Helper()
	s.patchClaim(claim, map[string]any{"metadata": map[string]any{"labels": labels}})
}

func (s *claimsWorld) patchClaim(claim *corev1.PersistentVolumeClaim, changes map[string]any) {
	s.Helper()
	patch, err := json.Marshal(changes)
	if err == nil {
		_, err = s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(s.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *claimsWorld) patchVolume(name, patch string) {
	s.Helper()
	if _, err := s.Client.CoreV1().PersistentVolumes().Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// pass makes sure that the manager has had time for whatever came before: it nudges the claims,
// so that they are looked at again, and then serves another one from its beginning to its volume.
func (s *claimsWorld) pass(name string, claims ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	for n := range 3 {
		for _, claim := range claims {
			s.annotate(claim, map[string]any{"example.com/nudge": fmt.Sprintf("%s-%d", name, n)})
		}
	}
	s.bound(name, s.class)
}

// at is a path of the test's file system on the machine of the test.
func (s *claimsWorld) at(path string) string { return filepath.Join(s.Folder(s.fileSystem), path) }

// write leaves data in a directory, as an application does.
func (s *claimsWorld) write(path, name string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.at(path), name), []byte(name), 0o600); err != nil {
		s.Fatal(err)
	}
}

// makeDirectory makes one without the manager.
func (s *claimsWorld) makeDirectory(path string, mode os.FileMode) {
	s.Helper()
	if err := os.MkdirAll(s.at(path), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.Chmod(s.at(path), mode); err != nil {
		s.Fatal(err)
	}
}

func (s *claimsWorld) wantFile(path, name string) {
	s.Helper()
	if data, err := os.ReadFile(filepath.Join(s.at(path), name)); err != nil || string(data) != name {
		s.Errorf("%s/%s has the content %q: %v\n%s", path, name, data, err, s.Story())
	}
}

// wantEmpty wants a directory with nothing in it.
func (s *claimsWorld) wantEmpty(path string) {
	s.Helper()
	entries, err := os.ReadDir(s.at(path))
	if err != nil || len(entries) > 0 {
		s.Errorf("%s has the entries %v: %v", path, entries, err)
	}
}

func (s *claimsWorld) wantNothingAt(path string) {
	s.Helper()
	if s.Exists(s.fileSystem, path) {
		s.Errorf("%s is there\n%s", path, s.Story())
	}
}

// owners are the volumes that the ledger has for a path, those that leave included.
func (s *claimsWorld) owners(path string) []string {
	s.Helper()
	entries, err := os.ReadDir(s.at(filepath.Join(wellknown.OwnersDirectory, path)))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	var owners []string
	for _, entry := range entries {
		if name, ok := strings.CutPrefix(entry.Name(), wellknown.OwnerPrefix); ok {
			owners = append(owners, name)
		}
	}
	return owners
}

// wantNoTrace wants that neither the directory nor the ledger remembers a path.
func (s *claimsWorld) wantNoTrace(path string) {
	s.Helper()
	s.wantNothingAt(path)
	if owners := s.owners(path); len(owners) > 0 {
		s.Errorf("the ledger has %q for %s\n%s", owners, path, s.Story())
	}
}

// ownDirectory is the path of a claim without volume_name in a class without parameters.
func ownDirectory(claim *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("/%s/%s-%s", claim.Namespace, claim.Name, claim.UID)
}

// wantUntouched wants that nothing at all was done for a claim.
func (s *claimsWorld) wantUntouched(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	if found := s.touches(claim); len(found) > 0 {
		s.Errorf("claim %s has %q\n%s", claim.Name, found, s.Story())
	}
	s.wantNoTrace(ownDirectory(claim))
}

// touches are what was done for a claim, but for its directory.
func (s *claimsWorld) touches(claim *corev1.PersistentVolumeClaim) (found []string) {
	s.Helper()
	for key := range s.see(claim).Annotations {
		if strings.HasPrefix(key, wellknown.Domain) || strings.Contains(key, "."+wellknown.Domain+"/") {
			found = append(found, "the annotation "+key)
		}
	}
	for _, event := range s.told(s.Context(), claim) {
		found = append(found, fmt.Sprintf("the event %s: %s", event.Reason, event.Message))
	}
	if _, err := s.Client.CoreV1().PersistentVolumes().Get(s.Context(), volumes.VolumeName(claim.UID), metav1.GetOptions{}); err == nil {
		found = append(found, "a volume")
	}
	return found
}

// changeFileSystem has the EFS API tell something else of a file system.
func (s *claimsWorld) changeFileSystem(id string, edit func(*efs.FileSystem)) {
	s.Helper()
	listing, err := s.EFS.ListFileSystems(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, fileSystem := range listing.FileSystems {
		if fileSystem.ID == id {
			edit(&fileSystem)
			s.EFS.Put(fileSystem)
			return
		}
	}
	s.Fatalf("the EFS API has no file system %s", id)
}
