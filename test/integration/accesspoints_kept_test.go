//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// asListed returns an access point as `aws efs describe-access-points` shows it.
func asListed(point efs.AccessPoint) rebuild.AccessPoint {
	return rebuild.AccessPoint{ID: point.ID, FileSystem: point.FileSystemID, Path: point.Path, Token: point.Token}
}

// waitForPortOfPoint waits until table and volume agree on the port of an access point whose volume the manager has not
// made itself: the manager sees the volume after the plugin has created it, and may have retired the port until then.
func (f *fixture) waitForPortOfPoint(volume, point string) {
	f.Helper()
	f.Eventually("volume "+volume+" has the port of "+point, func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if err != nil {
			return err
		}
		found, err := f.volumes().Get(ctx, volume, metav1.GetOptions{})
		if err != nil {
			return err
		}
		port, _ := table.Port(ports.Key{FileSystem: f.fileSystem, AccessPoint: point})
		if port == 0 || portOption(found) != fmt.Sprintf("port=%d", port) {
			return fmt.Errorf("the volume has %q, the table %d", portOption(found), port)
		}
		return nil
	})
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
	f.waitForPortOfPoint(volume.Name, point.ID)
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

// TestVolumeOfTheDriverIsImportedWithItsAccessPoint: same data, same user, and both claims may be used meanwhile. The
// access point is the driver's, and stays.
func TestVolumeOfTheDriverIsImportedWithItsAccessPoint(t *testing.T) {
	t.Parallel()
	f := newDriverFixture(t)
	f.startManager(nil)
	f.waitForPoint(f.NewClaim("first", f.class)) // the file system has its root claim
	point := efs.AccessPoint{
		ID: "fsap-0123456789abcdef0", FileSystemID: f.fileSystem, State: efs.Available, Token: "data", Path: "/old/data", User: &efs.PosixUser{UID: 7, GID: 7},
	}
	f.EFS.PutAccessPoint(point)
	f.makeDirectory(point.Path)
	driver := f.staticPair(f.Named("driver"), "data", corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: f.fileSystem + "::" + point.ID},
	})
	bound, err := f.volumes().Get(t.Context(), driver.volume.Name, metav1.GetOptions{})
	f.check(err)
	known := rebuild.AWSDriver.KnownClaims(map[string]*corev1.PersistentVolume{bound.Name: bound}, f.fileSystem, []rebuild.AccessPoint{asListed(point)})
	wanted := known[point.Path]
	wanted.Claim += "-tls"
	f.expectStates("imported", f.imported(corev1.PersistentVolumeReclaimDelete, true, wanted), rebuild.Done)

	claim := f.getClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.Team, Name: "data-tls"}})
	volume := f.waitForBound(claim)
	f.waitForPortOfPoint(volume.Name, point.ID)
	if volume.Spec.NFS.Path != "/" {
		t.Errorf("the volume has path %s", volume.Spec.NFS.Path)
	}
	f.expectFile(point.Path)
	f.deleteClaims(claim)
	f.waitForVolumeDeleted(volume.Name)
	if _, exists := f.EFS.AccessPoint(point.Token); !exists {
		t.Error("the driver's access point was deleted")
	}
	f.expectNothingAt(point.Path)
	f.waitForEvent(volume, wellknown.EventVolumeDeleteSkipped, "access point "+point.ID)
}

// TestDirectoryOfAnAccessPointComesBackFromTheTrash on a new access point, of the same user.
func TestDirectoryOfAnAccessPointComesBackFromTheTrash(t *testing.T) {
	t.Parallel()
	f := newDriverFixture(t)
	f.startManager(nil)
	claim := f.NewClaim("data", f.class)
	volume, point := f.waitForPoint(claim)
	f.patchVolume(volume.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"forever"}}}`, wellknown.AnnotationKeepDeleted))
	f.writeFile(point.Path)
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)

	items, err := f.runner().ListTrash(t.Context(), []string{f.fileSystem})
	f.check(err)
	namespace, err := f.Client.CoreV1().Namespaces().Get(t.Context(), f.Team, metav1.GetOptions{})
	f.check(err)
	restore := ledger.Restore{
		Cluster: f.ClusterUID, Provisioner: f.Provisioner, Namespace: namespace, Claim: "data", Name: "back",
		Size: resource.MustParse("1Gi"), AccessMode: corev1.ReadWriteMany,
	}
	item, err := restore.Find(items)
	f.check(err)
	class, err := f.Client.StorageV1().StorageClasses().Get(t.Context(), f.class, metav1.GetOptions{})
	f.check(err)
	object, _, err := restore.Object(item, class)
	f.check(err)
	back, err := f.claims(f.Team).Create(t.Context(), object, metav1.CreateOptions{})
	f.check(err)
	_, again := f.waitForPoint(back)
	if again.ID == point.ID || *again.User != *point.User {
		t.Errorf("it came back on %+v of %+v, was on %+v of %+v", again, again.User, point, point.User)
	}
	f.expectFile(again.Path)

	delete(class.Parameters, "gid") // one is allocated then, which is not the data's
	if _, _, err := restore.Object(item, class); err == nil || !strings.Contains(err.Error(), "use a class with uid and gid") {
		t.Errorf("a class that allocates: %v", err)
	}
}

// TestVolumeOfAnAccessPointIsCounted by a survey of its directory.
func TestVolumeOfAnAccessPointIsCounted(t *testing.T) {
	t.Parallel()
	f := newDriverFixture(t)
	f.startManager(nil)
	claim := f.NewClaim("data", f.class)
	_, point := f.waitForPoint(claim)
	f.writeFile(point.Path)
	f.annotate(f.WaitForRootClaim(f.fileSystem), map[string]any{wellknown.AnnotationSurveyRequested: time.Now().UTC().Format(time.RFC3339)})
	if usage := f.waitForUsage(claim, 1); usage.Files != 2 {
		t.Errorf("got %+v", usage)
	}
}

// runAccessPoint has an access point made and deleted, each once.
func (f *fixture) runAccessPoint() {
	claim := f.NewClaim("data", f.class)
	volume, point := f.waitForPoint(claim)
	f.deleteClaims(claim)
	f.waitForPointDeleted(claim, point, portOption(volume))
	if calls := f.EFS.Calls(); f.EFS.AccessPoints() != 0 || calls.Created != 1 {
		f.Errorf("%d access points are left, the calls were %+v", f.EFS.AccessPoints(), calls)
	}
}

var errRefused = &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized to perform: elasticfilesystem:CreateAccessPoint"}

// refuseAccessPoints has AWS refuse to create any.
func (f *fixture) refuseAccessPoints() {
	f.useDriverClass()
	f.EFS.Intercept(func(call efstest.Call) error {
		if call.Create {
			return errRefused
		}
		return nil
	})
}

// runGivenUp expects nothing to be left of a claim that is deleted while it waits for its access point.
func (f *fixture) runGivenUp() {
	claim := f.NewClaim("data", f.class)
	f.expectCondition(claim, status.AccessPointFailed)
	path := "/dynamic_provisioning/" + volumes.VolumeName(claim.UID)
	if !f.Exists(f.fileSystem, path) {
		f.Fatalf("there is no directory %s\n%s", path, f.Dump())
	}
	f.deleteClaims(claim)
	f.Eventually("nothing is left of the claim", func(context.Context) error {
		if f.Exists(f.fileSystem, path) || f.EFS.AccessPoints() != 0 {
			return fmt.Errorf("its directory exists, or one of %d access points", f.EFS.AccessPoints())
		}
		return nil
	})
	f.WaitForVolumeDeleted(claim)
}

// TestClaimDeletedBeforeItsAccessPointIsKnown leaves nothing: neither its directory while AWS refuses, nor an access point
// whose answer was lost. Once it is deleted, no creation is tried.
func TestClaimDeletedBeforeItsAccessPointIsKnown(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]efstest.Call{"it is refused": {Create: true}, "the answer is lost": {Create: true, After: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDriverFixture(t)
			f.EFS.Intercept(func(call efstest.Call) error {
				if call == at {
					return errRefused
				}
				return nil
			})
			f.startManager(nil)
			f.runGivenUp()
			if calls := f.EFS.Calls(); at.After != (calls.Created == 1) || at.After != (calls.Deleted == 1) {
				t.Errorf("the calls were %+v", calls)
			}
		})
	}
}

// TestAccessPointDeletedInAWSIsReported though no class of the driver was there when the manager began. Its directory stays
// until the claim is deleted.
func TestAccessPointDeletedInAWSIsReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startManager(nil)
	f.provision("first", f.class)
	f.useDriverClass()
	claim := f.NewClaim("data", f.class)
	volume, point := f.waitForPoint(claim)
	f.writeFile(point.Path)
	f.EFS.RemoveAccessPoint(point.ID)
	f.waitForEvent(volume, wellknown.EventAccessPointMissing, "access point "+point.ID, "was deleted in AWS", point.Path)
	f.expectFile(point.Path)
	f.deleteClaims(claim)
	f.waitForPointDeleted(claim, point, portOption(volume))
	if calls := f.EFS.Calls(); calls.Created != 1 {
		t.Errorf("the calls are %+v", calls)
	}
}
