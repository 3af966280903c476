//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

func oneZoneB(fs *efs.FileSystem) {
	target := &fs.MountTargets[0]
	target.SubnetID, target.ZoneName = "subnet-b", "us-east-1b"
	fs.AvailabilityZone = "us-east-1b"
}

// selectNode does what the scheduler does for a class that waits for the first consumer.
func (f *fixture) selectNode(claim *corev1.PersistentVolumeClaim, node string) {
	f.Helper()
	f.annotate(claim, map[string]any{wellknown.AnnotationSelectedNode: node})
}

// TestSelectedNodeInAnotherZoneIsRemoved: until the scheduler selects a node in the file system's zone.
func TestSelectedNodeInAnotherZoneIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	far := f.NewFileSystem(oneZoneB)
	f.startManager(nil)
	class := f.NewClass("far", map[string]string{"default_file_system_id": far, "enforce_zone_affinity": "true"}, waitingForConsumer)
	claim := f.NewClaim("data", class.Name)
	for range 2 { // the scheduler may select the same node again
		f.selectNode(claim, f.Nodes[0])
		f.Eventually("the selected node is removed", func(ctx context.Context) error {
			found, err := f.claims(f.Team).Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if node, ok := found.Annotations[wellknown.AnnotationSelectedNode]; ok {
				return fmt.Errorf("it is %s", node)
			}
			return nil
		})
	}
	f.waitForEvent(claim, wellknown.EventProvisioningFailed, far, "without a mount target", "us-east-1a", f.Nodes[0], "another node")
	f.syncAgain("other", claim)
	f.expectEventCount(claim, 1, wellknown.EventProvisioningFailed)
	f.expectNothingAt(ownDirectory(claim))

	f.selectNode(claim, f.Nodes[1])
	p := f.waitForProvisioned(claim)
	if p.claim.Annotations[wellknown.AnnotationSelectedNode] != f.Nodes[1] {
		t.Errorf("the claim's annotations are %q", p.claim.Annotations)
	}
	if zones := zonesOf(p.volume); len(zones) != 1 || zones[0] != "us-east-1b" {
		t.Errorf("the volume is for the zones %q", zones)
	}
}

func zonesOf(volume *corev1.PersistentVolume) []string {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var zones []string
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == corev1.LabelTopologyZone {
				zones = append(zones, expression.Values...)
			}
		}
	}
	return zones
}
