//go:build integration

package integration_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestSecondInstallationLeavesAFileSystemAlone until the first one's root volume is deleted. The other
// file system is served from the start.
func TestSecondInstallationLeavesAFileSystemAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	free, namespace := f.NewFileSystem(), f.Named("second")
	f.NewNamespace(namespace)
	first := f.startManager(nil, func(o *loops.Options) { o.Filter.IDs = []string{f.fileSystem} })
	volume := f.waitForBound(f.createClaim("data"))
	first.halt()
	const wrong = 20999
	f.patchVolume(volume.Name, `{"spec":{"mountOptions":["vers=4.1","port=20999"]}}`)

	f.startManager(nil, func(o *loops.Options) { o.Jobs.Namespace = namespace })
	_, others := volumes.RootObjects(free, 0, namespace)
	f.WaitForBound(others)
	belongs := "belongs to the installation in namespace " + f.Namespace
	table, err := f.Client.CoreV1().ConfigMaps(namespace).Get(t.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	f.check(err)
	f.waitForEvent(table, wellknown.EventRootVolumeConflict, f.fileSystem, belongs)
	f.waitForEvent(f.createClaim("waiting"), wellknown.EventProvisioningFailed, f.fileSystem, belongs)
	f.deleteJobs()
	f.deleteRootClaim()
	_, own := volumes.RootObjects(f.fileSystem, 0, f.Namespace)
	f.waitForClaimDeleted(own)
	f.waitForEvent(f.createClaim("still-waiting"), wellknown.EventProvisioningFailed, f.fileSystem, belongs)
	now, err := f.volumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
	f.check(err)
	if port := ports.VolumeOf(now).Port; port != wrong {
		t.Errorf("the second installation has corrected port %d of the first one's volume to %d", wrong, port)
	}

	f.deleteRootVolume()
	_, others = volumes.RootObjects(f.fileSystem, 0, namespace)
	f.WaitForBound(others)
}
