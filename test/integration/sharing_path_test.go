//go:build integration

package integration_test

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// TestLastOneOutRemovesTheData has two claims share a directory and leave it, in every order.
func TestLastOneOutRemovesTheData(t *testing.T) {
	s := newClaimsWorld(t)
	for name, order := range map[string][]int{"maker-first": {0, 1}, "maker-last": {1, 0}} {
		pair := s.pair(name)
		leaves, stays := pair[order[0]], pair[order[1]]
		s.deleteClaims(leaves.claim)
		s.AwaitVolumeGone(leaves.claim)
		s.wantFile(stays.path, "data")
		s.awaitTold(leaves.object, wellknown.EventVolumeDeleteSkipped, "its directory stays", stays.path, "belongs to", stays.object.Name)
		if phase := s.see(stays.claim).Status.Phase; phase != corev1.ClaimBound {
			t.Errorf("%s: the other claim is %s", name, phase)
		}
		s.deleteClaims(stays.claim)
		s.AwaitVolumeGone(stays.claim)
		s.wantNoTrace(stays.path)
		s.wantTold(stays.object, wellknown.EventVolumeDeleteSkipped, 0)
	}
	pair := s.pair("both-at-once")
	s.deleteClaims(pair[0].claim, pair[1].claim)
	for _, v := range pair {
		s.AwaitVolumeGone(v.claim)
	}
	s.wantNoTrace(pair[0].path)
}

// pair are two volumes with one directory that has data; the first one made it.
func (s *claimsWorld) pair(name string) []boundVolume {
	s.Helper()
	pair := []boundVolume{s.bound(name+"-1", s.class, called(name)), s.bound(name+"-2", s.class, called(name))}
	if pair[0].path != pair[1].path {
		s.Fatalf("%s and %s are not the same", pair[0].path, pair[1].path)
	}
	s.write(pair[0].path, "data")
	return pair
}

// TestOneLeavesWhileAnotherComes lets a claim take a name at the moment at which it becomes free.
// Whether it meets the old data or a new directory, it must have one of them in the end.
func TestOneLeavesWhileAnotherComes(t *testing.T) {
	s := newClaimsWorld(t)
	last := s.bound("generation", s.class, called("shared"))
	for range 5 {
		s.deleteClaims(last.claim)
		s.awaitClaimGone(last.claim)
		next := s.NewClaim("generation", s.class, called("shared"))
		s.AwaitVolumeGone(last.claim)
		last = s.await(next)
		s.write(last.path, "data")
		if owners := s.owners(last.path); len(owners) != 1 || owners[0] != last.object.Name {
			t.Errorf("the ledger has %q for %s, which is %s's", owners, last.path, last.object.Name)
		}
	}
}

// TestNamespacesShareOnlyIfTheClassSaysSo has the ledger keep one namespace out of another's.
func TestNamespacesShareOnlyIfTheClassSaysSo(t *testing.T) {
	s := newClaimsWorld(t)
	other := s.Named("other-team")
	s.NewNamespace(other)
	pattern := map[string]string{"path_pattern": "common/${volume_name}"}
	closed := s.NewClass("closed", pattern).Name
	open := s.NewClass("open", map[string]string{"path_pattern": pattern["path_pattern"], "share_across_namespaces": "true"}).Name

	first := s.bound("first", closed, called("shared"))
	s.write(first.path, "data")
	refused := s.NewClaim("refused", closed, called("shared"), inNamespace(other))
	s.awaitTold(refused, wellknown.EventProvisioningFailed,
		first.path, "belongs to", first.object.Name, s.Team+"/first", "share_across_namespaces", "attempt 1; next at")
	welcome := s.bound("welcome", open, called("shared"), inNamespace(other))
	s.wantFile(welcome.path, "data")

	s.deleteClaims(refused)
	s.deleteClaims(first.claim)
	s.AwaitVolumeGone(first.claim)
	s.wantFile(welcome.path, "data")
	waiting := s.NewClaim("waiting", closed, called("shared")) // now it is the other's
	s.awaitTold(waiting, wellknown.EventProvisioningFailed, "belongs to", welcome.object.Name, other+"/welcome")
	s.deleteClaims(welcome.claim)
	s.AwaitVolumeGone(welcome.claim)
	s.wantEmpty(s.await(waiting).path)
	s.wantNotRejected(waiting)
}

// TestNestedVolumesAreRefused puts volumes above and below another one.
func TestNestedVolumesAreRefused(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.bound("data", s.class, called("data"))
	s.write(v.path, "data")
	patterns := map[string]string{"above": "${.PVC.namespace}", "below": "${.PVC.namespace}/data/${volume_name}", "far-below": "${.PVC.namespace}/data/a/b/${volume_name}"}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for name, pattern := range patterns {
		claims[name] = s.NewClaim(name, s.NewClass(name, map[string]string{"path_pattern": pattern}).Name, called("x"))
	}
	for name := range patterns {
		s.awaitTold(claims[name], wellknown.EventProvisioningFailed, "one inside the other", v.path, v.object.Name)
	}
	s.wantNothingAt(v.path + "/x")
	s.wantNothingAt(v.path + "/a")
	s.wantFile(v.path, "data")
	s.deleteClaims(claims["above"], claims["far-below"])
	s.deleteClaims(v.claim)
	s.AwaitVolumeGone(v.claim)
	s.await(claims["below"])
}

// TestRetainedDataComesBack gives data under its name to the next claims of its namespace and class.
// Their deletions leave it where it is, also when one comes while the last one leaves.
func TestRetainedDataComesBack(t *testing.T) {
	s := newClaimsWorld(t)
	retain := s.NewClass("retain", nil, retaining).Name
	deleted := world.WithLabels(map[string]string{wellknown.LabelVolumeName: "kept", wellknown.LabelReclaimPolicy: "Delete"})
	first := s.bound("first", retain, called("kept"))
	s.write(first.path, "data")
	s.deleteClaims(first.claim)
	s.awaitPhase(first.object.Name, corev1.VolumeReleased)

	second := s.bound("second", retain, deleted)
	s.wantFile(second.path, "data")
	s.deleteClaims(second.claim)
	s.AwaitVolumeGone(second.claim)
	s.awaitTold(second.object, wellknown.EventVolumeDeleteSkipped, first.path, "belongs to", first.object.Name)
	s.wantFile(first.path, "data")

	s.deleteVolume(first.object.Name) // by hand: only the ledger remembers it now
	s.AwaitVolumeGone(first.claim)
	other := s.NewClaim("other", s.class, called("kept"))
	s.awaitTold(other, wellknown.EventProvisioningFailed, "belongs to", first.object.Name, retain, "share_across_namespaces")
	s.deleteClaims(other)
	third := s.bound("third", retain, deleted)
	s.wantFile(third.path, "data")
	for _, name := range []string{"fourth", "fifth"} { // a redeploy, twice
		s.deleteClaims(third.claim)
		next := s.bound(name, retain, deleted)
		s.AwaitVolumeGone(third.claim)
		s.wantFile(next.path, "data")
		third = next
	}
	s.deleteClaims(third.claim)
	s.AwaitVolumeGone(third.claim)
	s.awaitTold(third.object, wellknown.EventVolumeDeleteSkipped, first.path, "has the retained data of", first.object.Name)
	s.wantFile(first.path, "data")
	if owners := s.owners(first.path); len(owners) != 1 || owners[0] != first.object.Name+".retained" {
		t.Errorf("the ledger has %q", owners)
	}
	refused := s.NewClaim("refused", s.class, called("kept"))
	s.awaitTold(refused, wellknown.EventProvisioningFailed, "has the retained data of", retain, "share_across_namespaces")
	s.wantFile(s.bound("sixth", retain, deleted).path, "data")
}

// TestDirectoryOfAVolumeThatIsNotAdopted has two volumes of the original system share a directory,
// of which the ledger knows one only. What ends with that one is not the other's data.
func TestDirectoryOfAVolumeThatIsNotAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(d *drill, unknown *corev1.PersistentVolume)
		stays bool
	}{
		"then it is deleted": {func(d *drill, unknown *corev1.PersistentVolume) {
			d.check(d.Client.CoreV1().PersistentVolumes().Delete(d.Context(), unknown.Name, metav1.DeleteOptions{}))
		}, false},
		"then it is adopted": {func(d *drill, unknown *corev1.PersistentVolume) {
			_, err := d.Client.CoreV1().PersistentVolumes().Patch(d.Context(), unknown.Name, types.MergePatchType, []byte(`{"spec": {"claimRef": null}}`), metav1.PatchOptions{})
			d.check(err)
			d.originalClaim("again", "unknown")
			d.awaitEvent(unknown, wellknown.EventVolumeAdopted)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrill(t)
			known := d.originalVolume("known", 20490, "data")
			claim := d.originalClaim("data", "known")
			unknown := d.sharingVolume("unknown", known)
			d.deleteClaim(d.originalClaim("kept", "unknown"))
			d.poll()
			d.awaitEvent(known, wellknown.EventVolumeAdopted)
			d.deleteClaim(claim)
			d.awaitEvent(known, wellknown.EventVolumeFailedDelete, "nothing is removed", unknown.Name, "not adopted")
			d.awaitPolls(3)
			file := filepath.Join(known.Spec.NFS.Path, "file")
			if !d.Exists(d.fileSystem, file) {
				t.Fatalf("the data of the volume that is not adopted is gone\n%s", d.Story())
			}
			c.then(d, unknown)
			d.awaitGone("the adopted volume", func(ctx context.Context) error {
				_, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, known.Name, metav1.GetOptions{})
				return err
			})
			if d.Exists(d.fileSystem, file) != c.stays {
				t.Errorf("want the data to stay: %v\n%s", c.stays, d.Story())
			}
		})
	}
}

// sharingVolume is another volume of the original system with the same directory, to be retained.
func (d *drill) sharingVolume(what string, with *corev1.PersistentVolume) *corev1.PersistentVolume {
	d.Helper()
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: d.Named(what), Annotations: with.Annotations},
		Spec:       *with.Spec.DeepCopy(),
	}
	object.Spec.ClaimRef, object.Spec.PersistentVolumeReclaimPolicy = nil, corev1.PersistentVolumeReclaimRetain
	made, err := d.Client.CoreV1().PersistentVolumes().Create(d.Context(), object, metav1.CreateOptions{})
	d.check(err)
	return made
}
