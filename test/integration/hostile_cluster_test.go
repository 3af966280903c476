//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestHostileCluster has the apiserver take what it takes of some hundred hostile classes, claims
// and volumes, and a manager live with that.
func TestHostileCluster(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	a := newAttacker(seed)
	victim := d.claim("victim", withVolumeName("victim"))
	d.start(nil)
	d.awaitBound(victim)
	root, outside := d.Folder(d.fileSystem), t.TempDir()
	plant(t, root, outside)
	must(t, os.WriteFile(filepath.Join(root, d.Team, "victim", "secret"), []byte("of the victim"), 0o600))
	before := treeOf(t, root)
	maps.DeleteFunc(before, func(path, _ string) bool {
		return strings.HasPrefix(path, wellknown.StateDirectory) && !strings.HasPrefix(path, wellknown.OwnersDirectory+"/"+d.Team)
	})

	claims := d.sendClaims(a, d.sendClasses(a, 12), 300)
	forged := d.sendVolumes(a, 100)
	t.Logf("the apiserver took %d claims and %d volumes", len(claims), len(forged))
	if len(claims) < 60 || len(forged) < 30 {
		t.Errorf("that is too few to tell")
	}
	d.awaitJudged(claims)
	for _, claim := range claims {
		d.deleteClaim(claim)
	}
	d.awaitLeft()
	d.AwaitJobsUsed()
	after := treeOf(t, root)
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			t.Errorf("%q was %q and is %q", path, before[path], after[path])
		}
	}
	if tree := treeOf(t, outside); len(tree) != 2 {
		t.Errorf("outside is %q", tree)
	}
	d.awaitBound(d.claim("after"))
}

// sendClasses gives the names of those that were taken; the default class is one.
func (d *drill) sendClasses(a attacker, count int) []string {
	d.Helper()
	names := []string{d.class}
	for i := range count {
		class := a.class(d.Named(fmt.Sprintf("hostile-%d", i)), d.Provisioner)
		if _, err := d.Client.StorageV1().StorageClasses().Create(d.Context(), class, metav1.CreateOptions{}); err == nil {
			names = append(names, class.Name)
		}
	}
	open := d.NewClass("open", map[string]string{"path_pattern": "${.PVC.annotations.path}/${volume_name}"})
	return append(names, open.Name)
}

// sendClaims gives those that were taken.
func (d *drill) sendClaims(a attacker, classes []string, count int) []*corev1.PersistentVolumeClaim {
	d.Helper()
	var taken []*corev1.PersistentVolumeClaim
	for i := range count {
		claim := a.claim(d.Team, classes[i%len(classes)])
		claim.UID = ""
		if a.IntN(4) > 0 {
			claim.Name = fmt.Sprintf("claim-%d", i)
		}
		if a.IntN(2) == 0 {
			claim.Labels = nil
		}
		if made, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).Create(d.Context(), claim, metav1.CreateOptions{}); err == nil {
			taken = append(taken, made)
		}
	}
	return taken
}

// sendVolumes gives those that were taken.
func (d *drill) sendVolumes(a attacker, count int) []*corev1.PersistentVolume {
	d.Helper()
	var taken []*corev1.PersistentVolume
	for range count {
		object := a.volume(d.Provisioner, d.fileSystem)
		if object.Spec.ClaimRef.Namespace == "victim" {
			object.Spec.ClaimRef.Namespace, object.Spec.NFS.Path = d.Team, "/"+d.Team+"/victim"
		}
		object.Status = corev1.PersistentVolumeStatus{} // the binder finds out
		if made, err := d.Client.CoreV1().PersistentVolumes().Create(d.Context(), object, metav1.CreateOptions{}); err == nil {
			taken = append(taken, made)
		}
	}
	return taken
}

// awaitJudged waits until every claim is bound, or has been told why not.
func (d *drill) awaitJudged(claims []*corev1.PersistentVolumeClaim) {
	d.Helper()
	d.Eventually("every claim knows", func(ctx context.Context) error {
		found, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		events, err := d.Client.CoreV1().Events(d.Team).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + wellknown.EventProvisioningFailed})
		if err != nil {
			return err
		}
		for _, claim := range found.Items {
			told := slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID == claim.UID })
			if claim.Status.Phase != corev1.ClaimBound && !told {
				return fmt.Errorf("of %d, claim %s does not", len(claims), describe(claim))
			}
		}
		return nil
	})
}

// awaitLeft waits until no volume of ours is left but those that nobody can clean up, which are
// told so, and the victim's.
func (d *drill) awaitLeft() {
	d.Helper()
	d.Eventually("volumes are gone, or told", func(ctx context.Context) error {
		events, err := d.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + wellknown.EventVolumeFailedDelete})
		if err != nil {
			return err
		}
		for _, object := range d.provisioned(ctx) {
			told := slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID == object.UID })
			reclaimed := object.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
			if object.Status.Phase == corev1.VolumeReleased && reclaimed && !told {
				return fmt.Errorf("volume %s is not", describe(object))
			}
		}
		return nil
	})
}
