//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestHostileObjectsHarmNoOtherData: the manager syncs those of 160 hostile claims and volumes that the apiserver
// accepts, of 400 in the long run.
func TestHostileObjectsHarmNoOtherData(t *testing.T) {
	t.Parallel()
	f, a := newFixture(t), newAttacker()
	victim := f.createClaim("victim", withVolumeName("victim"))
	f.startManager(nil)
	f.waitForBound(victim)
	outside := t.TempDir()
	plant(t, f.local("/"), outside)
	f.writeFile("/" + f.Team + "/victim")
	before := treeOf(t, f.local("/"))
	maps.DeleteFunc(before, func(path, _ string) bool {
		return strings.HasPrefix(path, wellknown.StateDirectory) && !strings.HasPrefix(path, wellknown.OwnersDirectory+"/"+f.Team)
	})

	triedClaims, triedVolumes := 120, 40
	if everyCrash {
		triedClaims, triedVolumes = 300, 100
	}
	claims := f.createHostileClaims(a, f.createHostileClasses(a, 12), triedClaims)
	forged := f.createHostileVolumes(a, triedVolumes)
	t.Logf("the apiserver accepted %d claims and %d volumes", len(claims), len(forged))
	if len(claims) < triedClaims/5 || len(forged) < triedVolumes/4 {
		t.Error("these are too few for a proof")
	}
	f.waitForVerdicts(len(claims))
	f.deleteClaims(claims...)
	f.waitForCleanups()
	f.WaitForJobsReleased()
	after := treeOf(t, f.local("/"))
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			t.Errorf("%q was %q and is %q", path, before[path], after[path])
		}
	}
	if tree := treeOf(t, outside); len(tree) != 2 {
		t.Errorf("outside is %q", tree)
	}
	f.waitForBound(f.createClaim("after"))
}

// createHostileClasses returns the names of the accepted ones, and of the fixture's own class.
func (f *fixture) createHostileClasses(a attacker, count int) []string {
	f.Helper()
	names := []string{f.class}
	for i := range count {
		class := a.class(f.Named(fmt.Sprintf("hostile-%d", i)), f.Provisioner)
		if _, err := f.Client.StorageV1().StorageClasses().Create(f.Context(), class, metav1.CreateOptions{}); err == nil {
			names = append(names, class.Name)
		}
	}
	open := f.NewClass("open", map[string]string{"path_pattern": "${.PVC.annotations.path}/${volume_name}"})
	return append(names, open.Name)
}

// createHostileClaims returns the accepted ones.
func (f *fixture) createHostileClaims(a attacker, classes []string, count int) []*corev1.PersistentVolumeClaim {
	f.Helper()
	var accepted []*corev1.PersistentVolumeClaim
	for i := range count {
		claim := a.claim(f.Team, classes[i%len(classes)])
		if a.IntN(4) > 0 {
			claim.Name = fmt.Sprintf("claim-%d", i)
		}
		if a.IntN(2) == 0 {
			claim.Labels = nil
		}
		if created, err := f.claims(f.Team).Create(f.Context(), claim, metav1.CreateOptions{}); err == nil {
			accepted = append(accepted, created)
		}
	}
	return accepted
}

// createHostileVolumes returns the accepted ones.
func (f *fixture) createHostileVolumes(a attacker, count int) []*corev1.PersistentVolume {
	f.Helper()
	var accepted []*corev1.PersistentVolume
	for range count {
		volume := a.volume(f.Provisioner, f.fileSystem)
		if volume.Spec.ClaimRef.Namespace == "victim" {
			volume.Spec.ClaimRef.Namespace, volume.Spec.NFS.Path = f.Team, "/"+f.Team+"/victim"
		}
		if created, err := f.volumes().Create(f.Context(), volume, metav1.CreateOptions{}); err == nil {
			accepted = append(accepted, created)
		}
	}
	return accepted
}

// waitForVerdicts waits until every claim is bound or has an event that says why not.
func (f *fixture) waitForVerdicts(count int) {
	f.Helper()
	f.Eventually("every claim is bound or has an event", func(ctx context.Context) error {
		found, err := f.claims(f.Team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		events, err := f.Client.CoreV1().Events(f.Team).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + wellknown.EventProvisioningFailed})
		if err != nil {
			return err
		}
		for _, claim := range found.Items {
			reported := slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID == claim.UID })
			if claim.Status.Phase != corev1.ClaimBound && !reported {
				return fmt.Errorf("of %d, claim %s has none", count, describe(claim))
			}
		}
		return nil
	})
}

// waitForCleanups waits until every released volume is deleted or has an event that says why not.
func (f *fixture) waitForCleanups() {
	f.Helper()
	f.Eventually("every released volume is deleted or has an event", func(ctx context.Context) error {
		events, err := f.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + wellknown.EventVolumeFailedDelete})
		if err != nil {
			return err
		}
		for _, volume := range f.provisionedVolumes(ctx) {
			reported := slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID == volume.UID })
			deletes := volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
			if volume.Status.Phase == corev1.VolumeReleased && deletes && !reported {
				return fmt.Errorf("volume %s has none", describe(volume))
			}
		}
		return nil
	})
}
