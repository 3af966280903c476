//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// nearZoneB moves a file system with its only mount target.
func nearZoneB(fs *efs.FileSystem) {
	target := &fs.MountTargets[0]
	target.SubnetID, target.ZoneName, target.ZoneID = "subnet-b", "us-east-1b", "use1-az2"
}

func oneZoneB(fs *efs.FileSystem) {
	nearZoneB(fs)
	fs.AvailabilityZone = "us-east-1b"
}

func onNode(node string) map[string]any {
	return map[string]any{wellknown.AnnotationSelectedNode: node}
}

// TestNodeIsGivenBack has a node far from the claim's file system replaced by the scheduler.
func TestNodeIsGivenBack(t *testing.T) {
	s := newClaimsWorld(t)
	far := s.NewFileSystem(oneZoneB)
	class := s.NewClass("far", map[string]string{"default_file_system_id": far, "enforce_zone_affinity": "true"}, waitingForConsumers)
	claim := s.NewClaim("data", class.Name)
	s.pass("meanwhile", claim)
	s.wantUntouched(claim)

	for range 2 { // the scheduler may be stubborn
		s.annotate(claim, onNode(s.Nodes[0]))
		s.awaitNodeBack(claim)
	}
	s.awaitTold(claim, wellknown.EventProvisioningFailed, far, "without a mount target", "us-east-1a", s.Nodes[0], "another node")
	s.pass("meanwhile-2", claim)
	s.wantTold(claim, wellknown.EventProvisioningFailed, 1)
	s.wantNothingAt(ownDirectory(claim))

	s.annotate(claim, onNode(s.Nodes[1]))
	v := s.await(claim)
	if v.claim.Annotations[wellknown.AnnotationSelectedNode] != s.Nodes[1] {
		t.Errorf("the claim's annotations are %q", v.claim.Annotations)
	}
	if zones := zonesOf(v.object); len(zones) != 1 || zones[0] != "us-east-1b" {
		t.Errorf("the volume is for the zones %q", zones)
	}
}

func (s *claimsWorld) awaitNodeBack(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.Eventually("the scheduler is asked for another node", func(ctx context.Context) error {
		found, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node, ok := found.Annotations[wellknown.AnnotationSelectedNode]; ok {
			return fmt.Errorf("it has the node %s", node)
		}
		return nil
	})
}

func zonesOf(object *corev1.PersistentVolume) []string {
	if object.Spec.NodeAffinity == nil || object.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var zones []string
	for _, term := range object.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == corev1.LabelTopologyZone {
				zones = append(zones, expression.Values...)
			}
		}
	}
	return zones
}
