//go:build integration

package integration_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// TestRefusalIsWithdrawnWhenItsCauseEnds: by labels and annotations of the claim, by its class, and by
// file systems. Each cause is reported once.
func TestRefusalIsWithdrawnWhenItsCauseEnds(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	labeled := f.NewClass("labeled", map[string]string{"path_pattern": "${.PVC.labels.app}/${volume_name}"})
	annotated := f.NewClass("annotated", map[string]string{"path_pattern": "${.PVC.annotations.example.com/dir}/${volume_name}"})
	mistyped := f.NewClass("mistyped", map[string]string{"directory_perms": "rwx"})
	tagged := f.NewClass("tagged", map[string]string{"default_file_system_id": f.fileSystem, "file_system_tags": "team=blue"})
	zoned := f.NewClass("zoned", nil, func(class *storagev1.StorageClass) {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: corev1.LabelTopologyZone, Values: []string{"us-east-1b"}},
		}}}
	})
	f.WaitForRootClaim(f.fileSystem)
	byLabel, byAnnotation, byClass := f.NewClaim("by-label", labeled.Name), f.NewClaim("by-annotation", annotated.Name), f.NewClaim("by-class", mistyped.Name)
	byTag, byZone := f.NewClaim("by-tag", tagged.Name), f.NewClaim("by-zone", zoned.Name)
	f.waitForRejection(byLabel, "${.PVC.labels.app}", "empty")
	f.waitForRejection(byAnnotation, "${.PVC.annotations.example.com/dir}", "empty")
	f.waitForRejection(byClass, "directory_perms", "rwx")
	f.waitForRejection(byTag, f.fileSystem, "lacks the tags", "team=blue")
	f.waitForRejection(byZone, f.fileSystem, "without a mount target", "us-east-1b")

	f.annotate(byAnnotation, map[string]any{"example.com/dir": "../../shop"})
	f.waitForRejection(byAnnotation, annotated.Name, "component ..")
	f.annotate(byAnnotation, map[string]any{"example.com/dir": "shop/front"})
	f.patchClaim(byLabel, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "shop"}}})
	for claim, want := range map[*corev1.PersistentVolumeClaim]string{
		byLabel: "/shop/by-label-" + string(byLabel.UID), byAnnotation: "/shop/front/by-annotation-" + string(byAnnotation.UID),
	} {
		if p := f.waitForProvisioned(claim); p.path != want {
			t.Errorf("the path is %s, want %s", p.path, want)
		}
	}
	classes := f.Client.StorageV1().StorageClasses() // parameters cannot be edited
	f.check(classes.Delete(t.Context(), mistyped.Name, metav1.DeleteOptions{}))
	f.NewClass("mistyped", nil)
	f.addTagAndMountTarget()
	for _, claim := range []*corev1.PersistentVolumeClaim{byLabel, byClass, byTag, byZone} {
		f.waitForProvisioned(claim)
		f.expectNotRejected(claim)
		f.expectEventCount(claim, 1, wellknown.EventProvisioningFailed)
	}
	f.expectNotRejected(byAnnotation)
	f.expectEventCount(byAnnotation, 2, wellknown.EventProvisioningFailed)
}

// addTagAndMountTarget changes what the EFS API reports of the file system.
func (f *fixture) addTagAndMountTarget() {
	f.Helper()
	listing, err := f.EFS.ListFileSystems(f.Context())
	f.check(err)
	changed := listing.FileSystems[0]
	target := changed.MountTargets[0]
	target.SubnetID, target.ZoneName = "subnet-b", "us-east-1b"
	target.Address = target.Address.Next()
	changed.Tags, changed.MountTargets = map[string]string{"team": "blue"}, append([]efs.MountTarget{target}, changed.MountTargets...)
	f.EFS.Put(changed)
}
