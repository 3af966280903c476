package table

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// portChange is a volume as it is, and with the port that it should have.
type portChange struct {
	is, want   *corev1.PersistentVolume
	correction ports.Correction
}

// syncPorts corrects the ports of volumes.
func (c *Controller) syncPorts(ctx context.Context, _ string) (again time.Duration, err error) {
	d := c.inForce()
	if d == nil {
		return 0, nil
	}
	roots, _ := c.options.planRoots(d, c.observeRoots())
	changes := planPorts(d.corrections, c.caches.Volume, roots)
	return applyEach(c, d, changes, func(change portChange) error { return c.correct(ctx, change) })
}

// planPorts leaves out volumes that have changed since the decision, root volumes that are
// corrected as a whole, and volumes whose old annotation with mount options has the right port:
// kubelet reads no other options then.
func planPorts(corrections []ports.Correction, volume func(name string) *corev1.PersistentVolume, roots []root) []portChange {
	skipped := map[string]bool{}
	for _, r := range roots {
		skipped[volumes.RootName(r.FileSystemID)] = len(r.changes()) > 0
	}
	var changes []portChange
	for _, correction := range corrections {
		is := volume(correction.Volume)
		if is == nil || skipped[is.Name] {
			continue
		}
		if now := ports.VolumeOf(is); !now.Loopback || now.On != correction.On || now.Port != correction.From {
			continue
		}
		if want := is.DeepCopy(); volumes.SetPort(want, correction.To) {
			changes = append(changes, portChange{is: is, want: want, correction: correction})
		}
	}
	return changes
}

// correct writes the port that a volume must have; mounts that exist keep the old one.
func (c *Controller) correct(ctx context.Context, change portChange) error {
	if err := objects.PatchVolume(ctx, c.client, change.is, change.want); err != nil {
		return fmt.Errorf("correcting the port of volume %s: %w", change.is.Name, err)
	}
	c.metrics.corrections.Inc()
	why := change.correction
	c.options.Log.Warn("port corrected", "volume", change.is.Name, "fileSystem", why.On.FileSystem, "port", why.To, "message", why.Reason)
	c.recordOn(change.is, wellknown.EventPortCorrected, correctionMessage(why))
	return nil
}

func correctionMessage(c ports.Correction) string {
	from := fmt.Sprintf("port %d", c.From)
	if c.From == 0 {
		from = "no port"
	}
	return fmt.Sprintf("changed from %s to %d: %s; pods that use the volume since before must be restarted", from, c.To, c.Reason)
}
