//go:build integration

package integration_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func topology(key, value string) []corev1.TopologySelectorTerm {
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: []string{value}}}}}
}

// TestRefusalEndsWithTheWorld has refusals end by labels of the claim and by file systems.
func TestRefusalEndsWithTheWorld(t *testing.T) {
	s := newClaimsWorld(t)
	labeled := s.NewClass("labeled", map[string]string{"path_pattern": "${.PVC.labels.app}/${volume_name}"})
	annotated := s.NewClass("annotated", map[string]string{"path_pattern": "${.PVC.annotations.example.com/dir}/${volume_name}"})
	tagged := s.NewClass("tagged", map[string]string{"default_file_system_id": s.fileSystem, "file_system_tags": "team=blue"})
	zoned := s.NewClass("zoned", nil, func(class *storagev1.StorageClass) {
		class.AllowedTopologies = topology(corev1.LabelTopologyZone, "us-east-1b")
	})
	s.AwaitRoot(s.fileSystem)
	byLabel, byAnnotation := s.NewClaim("by-label", labeled.Name), s.NewClaim("by-annotation", annotated.Name)
	byTag, byZone := s.NewClaim("by-tag", tagged.Name), s.NewClaim("by-zone", zoned.Name)
	s.awaitRejected(byLabel, "${.PVC.labels.app}", "empty")
	s.awaitRejected(byAnnotation, "${.PVC.annotations.example.com/dir}", "empty")
	s.awaitRejected(byTag, s.fileSystem, "lacks the tags", "team=blue")
	s.awaitRejected(byZone, s.fileSystem, "without a mount target", "us-east-1b")

	s.annotate(byAnnotation, map[string]any{"example.com/dir": "../../shop"})
	s.awaitRejected(byAnnotation, annotated.Name, "component ..")
	s.annotate(byAnnotation, map[string]any{"example.com/dir": "shop/front"})
	s.label(byLabel, map[string]any{"app": "shop"})
	for claim, want := range map[*corev1.PersistentVolumeClaim]string{
		byLabel: "/shop/by-label-" + string(byLabel.UID), byAnnotation: "/shop/front/by-annotation-" + string(byAnnotation.UID),
	} {
		if v := s.await(claim); v.path != want {
			t.Errorf("the path is %s, want %s", v.path, want)
		}
	}
	s.changeFileSystem(s.fileSystem, func(fs *efs.FileSystem) {
		fs.Tags = map[string]string{"team": "blue"}
		target := fs.MountTargets[0]
		target.ID, target.SubnetID, target.ZoneName, target.ZoneID = "fsmt-b", "subnet-b", "us-east-1b", "use1-az2"
		target.Address = target.Address.Next()
		fs.MountTargets = append(fs.MountTargets, target)
	})
	for _, claim := range []*corev1.PersistentVolumeClaim{byLabel, byTag, byZone} {
		s.await(claim)
		s.wantNotRejected(claim)
		s.wantTold(claim, wellknown.EventProvisioningFailed, 1)
	}
	s.wantNotRejected(byAnnotation)
	s.wantTold(byAnnotation, wellknown.EventProvisioningFailed, 2)
}
