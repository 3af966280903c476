//go:build integration

package integration_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

// asListed returns an access point as `aws efs describe-access-points` shows it.
func asListed(point efs.AccessPoint) rebuild.AccessPoint {
	return rebuild.AccessPoint{ID: point.ID, FileSystem: point.FileSystemID, Path: point.Path, Token: point.Token}
}

// TestVolumeIsRebuiltOnItsAccessPoint and on nothing else while that is not known.
func TestVolumeIsRebuiltOnItsAccessPoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.useDriverClass(retaining)
	f.startManager(nil)
	claim := f.NewClaim("data", f.class)
	volume, point := f.waitForPoint(claim)
	f.lose(provisioned{claim: claim, volume: volume, path: point.Path})

	own := requests.Lost{Cluster: f.ClusterUID}
	items, err := f.rebuild(own, true)
	f.check(err)
	f.expectStates("without a list", items, rebuild.Refused)
	if !strings.Contains(items[0].Note, "--access-points") {
		t.Errorf("it says %q", items[0].Note)
	}
	items, err = f.rebuild(own, true, asListed(point))
	f.check(err)
	f.expectStates("with the list", items, rebuild.Done)
	again, _ := f.waitForPoint(f.getClaim(claim))
	if again.Name != volume.Name || f.EFS.AccessPoints() != 1 {
		t.Errorf("volume %s is %s again, with %d access points", volume.Name, again.Name, f.EFS.AccessPoints())
	}
	f.expectFile(point.Path)
	items, err = f.rebuild(own, true, asListed(point))
	f.check(err)
	f.expectStates("a second run", items, rebuild.Exists)

	f.setReclaimPolicy(volume.Name, corev1.PersistentVolumeReclaimDelete)
	f.waitForFinalizer(volume.Name)
	f.deleteClaims(claim)
	f.waitForPointDeleted(claim, point, portOption(again))
}
