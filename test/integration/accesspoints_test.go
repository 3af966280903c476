//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/aws/smithy-go"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// driverClass is one that a user of the AWS EFS CSI driver has published.
const driverClass = `kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: efs-sc-1
provisioner: efs.csi.aws.com
mountOptions:
- tls
volumeBindingMode: Immediate # Default
reclaimPolicy: Delete # Default
parameters:
  provisioningMode: efs-ap
  fileSystemId: fs-09a658ebf884ec043
  directoryPerms: "700"
  uid: "1000"
  gid: "1000"
  gidRangeStart: "1000" # optional
  gidRangeEnd: "2000" # optional
  basePath: "/dynamic_provisioning" # optional
`

// useDriverClass makes the class with the provisioner and the file system of the environment.
func (f *fixture) useDriverClass(edits ...func(*storagev1.StorageClass)) {
	f.Helper()
	published := storagev1.StorageClass{}
	f.check(yaml.UnmarshalStrict([]byte(driverClass), &published))
	f.class = f.NewClass("efs-sc-1", published.Parameters, append([]func(*storagev1.StorageClass){func(class *storagev1.StorageClass) {
		class.MountOptions, class.VolumeBindingMode, class.ReclaimPolicy = published.MountOptions, published.VolumeBindingMode, published.ReclaimPolicy
		class.Parameters["fileSystemId"] = f.fileSystem
	}}, edits...)...).Name
}

func newDriverFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.useDriverClass()
	return f
}

// waitForPoint waits for the volume of a claim, and expects it to be on the access point of the claim's directory.
func (f *fixture) waitForPoint(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, efs.AccessPoint) {
	f.Helper()
	volume := f.waitForBound(claim)
	point, _ := f.EFS.AccessPoint(volume.Name)
	table, err := f.Table(f.Context())
	f.check(err)
	port, _ := table.Port(ports.Key{FileSystem: f.fileSystem, AccessPoint: point.ID})
	if id := volume.Annotations[wellknown.AnnotationAccessPointID]; point.ID == "" || id != point.ID || volume.Spec.NFS.Path != "/" || port == 0 || portOption(volume) != fmt.Sprintf("port=%d", port) {
		f.Fatalf("volume %s on access point %q has path %s and %s; AWS has %+v, the table port %d\n%s", volume.Name, id, volume.Spec.NFS.Path, portOption(volume), point, port, f.Dump())
	}
	if path := volume.Annotations[wellknown.AnnotationPath]; path != point.Path || !f.Exists(f.fileSystem, path) {
		f.Errorf("the directory %s of volume %s, whose access point has %s", path, volume.Name, point.Path)
	}
	return volume, point
}

// waitForPointDeleted waits until volume, directory and access point of a deleted claim are gone, and its port is retired.
func (f *fixture) waitForPointDeleted(claim *corev1.PersistentVolumeClaim, point efs.AccessPoint, port string) {
	f.Helper()
	f.WaitForVolumeDeleted(claim)
	if left, exists := f.EFS.AccessPoint(point.Token); exists || f.Exists(f.fileSystem, point.Path) {
		f.Errorf("access point %+v is left: %v, its directory: %v", left, exists, f.Exists(f.fileSystem, point.Path))
	}
	f.Eventually("its port is retired", func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if text := fmt.Sprint(table.Retired); err == nil && (len(table.Targets[f.fileSystem].AccessPoints) > 0 || !strings.Contains(text, strings.TrimPrefix(port, "port="))) {
			err = fmt.Errorf("the table has %+v, retired are %s", table.Targets[f.fileSystem].AccessPoints, text)
		}
		return err
	})
}

func TestClassOfTheDriverServesItsClaims(t *testing.T) {
	t.Parallel()
	f := newDriverFixture(t)
	f.startManager(nil)
	claim := f.NewClaim("efs-claim-1", f.class)
	volume, point := f.waitForPoint(claim)
	if want := (efs.PosixUser{UID: 1000, GID: 1000}); point.User == nil || *point.User != want || !strings.HasPrefix(point.Path, "/dynamic_provisioning/") {
		t.Errorf("the access point is %+v of %+v", point, point.User)
	}
	if point.Tags[wellknown.TagCluster] != f.ClusterUID || point.Tags[wellknown.TagClaim] != f.Team+"/efs-claim-1" || point.Tags[wellknown.TagVolume] != volume.Name {
		t.Errorf("it has the tags %v", point.Tags)
	}
	info, err := os.Stat(f.local(point.Path))
	f.check(err)
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 1000 || owner.Gid != 1000 || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %d:%d's, with mode %o", owner.Uid, owner.Gid, info.Mode().Perm())
	}
	other, _ := f.waitForPoint(f.NewClaim("efs-claim-2", f.class))
	if portOption(other) == portOption(volume) || other.Annotations[wellknown.AnnotationPath] == point.Path {
		t.Errorf("two claims have %s and %s", portOption(volume), portOption(other))
	}
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	if f.EFS.AccessPoints() != 1 || !f.Exists(f.fileSystem, other.Annotations[wellknown.AnnotationPath]) {
		t.Errorf("%d access points are left", f.EFS.AccessPoints())
	}
	second := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.Team, Name: "efs-claim-2", UID: other.Spec.ClaimRef.UID}}
	f.deleteClaims(second)
	f.waitForPointDeleted(second, efs.AccessPoint{Token: other.Name, Path: other.Annotations[wellknown.AnnotationPath]}, portOption(other))
	if calls := f.EFS.Calls(); calls.Created != 2 || calls.Deleted != 2 || calls.Found != 0 {
		t.Errorf("the calls are %+v", calls)
	}
}

// TestPolicyDecidesAboutAccessPoint: the one that the volume has when its claim is deleted.
func TestPolicyDecidesAboutAccessPoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.useDriverClass(retaining)
	f.startManager(nil)
	kept, edited := f.NewClaim("kept", f.class), f.NewClaim("edited", f.class)
	_, keptPoint := f.waitForPoint(kept)
	_, editedPoint := f.waitForPoint(edited)
	f.deleteClaims(kept, edited)
	f.waitForReleased(kept)
	f.waitForReleased(edited)
	f.setReclaimPolicy(volumes.VolumeName(edited.UID), corev1.PersistentVolumeReclaimDelete)
	f.WaitForVolumeDeleted(edited)
	if _, exists := f.EFS.AccessPoint(editedPoint.Token); exists || f.Exists(f.fileSystem, editedPoint.Path) {
		t.Error("of the volume with policy Delete, something is left")
	}
	f.deleteVolume(volumes.VolumeName(kept.UID))
	f.WaitForVolumeDeleted(kept)
	f.useDriverClass(func(class *storagev1.StorageClass) { class.Name += "-deleting" })
	saved := f.NewClaim("saved", f.class)
	volume, savedPoint := f.waitForPoint(saved)
	f.setReclaimPolicy(volume.Name, corev1.PersistentVolumeReclaimRetain)
	f.waitForFinalizer(volume.Name)
	f.deleteClaims(saved)
	f.waitForReleased(saved)
	f.syncPoint(saved)
	for _, point := range []efs.AccessPoint{keptPoint, savedPoint} {
		if _, exists := f.EFS.AccessPoint(point.Token); !exists || !f.Exists(f.fileSystem, point.Path) {
			t.Errorf("access point %s or its directory is gone", point.ID)
		}
	}
}

// TestManagerThatDiesAtACallOfAWS: before the call arrives, and after it is carried out.
func TestManagerThatDiesAtACallOfAWS(t *testing.T) {
	t.Parallel()
	for _, at := range []efstest.Call{{Create: true}, {Create: true, After: true}, {}, {After: true}} {
		t.Run(fmt.Sprintf("%+v", at), func(t *testing.T) {
			t.Parallel()
			f := newDriverFixture(t)
			first := f.startManager(nil)
			var deaths atomic.Int32
			f.EFS.Intercept(func(call efstest.Call) error {
				if call == at && deaths.Add(1) == 1 {
					first.stop()
					return context.Canceled
				}
				return nil
			})
			claim := f.NewClaim("data", f.class)
			if at.Create {
				<-first.ended
				f.startManager(nil)
			}
			volume, point := f.waitForPoint(claim)
			if f.EFS.AccessPoints() != 1 {
				t.Errorf("there are %d access points", f.EFS.AccessPoints())
			}
			f.deleteClaims(claim)
			if !at.Create {
				<-first.ended
				f.startManager(nil)
			}
			f.waitForPointDeleted(claim, point, portOption(volume))
			if calls := f.EFS.Calls(); f.EFS.AccessPoints() != 0 || calls.Created != 1 {
				t.Errorf("%d access points are left, the calls were %+v", f.EFS.AccessPoints(), calls)
			}
		})
	}
}

func TestClaimSaysWhyItHasNoAccessPoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"no permission": {&smithy.GenericAPIError{Code: "AccessDeniedException", Message: "User: arn:aws:iam::1:role/r is not authorized to perform: elasticfilesystem:CreateAccessPoint on the specified resource"},
			[]string{"Allow the manager's AWS role elasticfilesystem:CreateAccessPoint"}},
		"throttled": {&smithy.GenericAPIError{Code: "ThrottlingException", Message: "Rate exceeded"}, []string{"Rate exceeded", "It is tried again"}},
		"the limit": {&smithy.GenericAPIError{Code: "AccessPointLimitExceeded", Message: "You have reached the maximum number of access points"}, []string{"maximum number", "Delete access points that are not used"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDriverFixture(t)
			f.EFS.Intercept(func(efstest.Call) error { return tt.err })
			f.startManager(nil)
			claim := f.NewClaim("data", f.class)
			f.expectCondition(claim, status.AccessPointFailed, tt.want...)
			f.EFS.Intercept(nil)
			f.waitForPoint(claim)
			f.expectVerdict(claim, "")
		})
	}
}

// expectCondition waits for the cause and some texts in a claim's condition.
func (f *fixture) expectCondition(claim *corev1.PersistentVolumeClaim, cause string, texts ...string) {
	f.Helper()
	f.Eventually(fmt.Sprintf("claim %s says %s: %q", claim.Name, cause, texts), func(context.Context) error {
		if verdict := decide.VerdictOn(f.getClaim(claim)); verdict.Cause != cause || !containsAll(verdict.Message, texts) { //nolint:contextcheck // the fixture has its own
			return fmt.Errorf("it says %s", verdict)
		}
		return nil
	})
}

// TestClaimWithoutPortIsServedOnceThereIsOne: the range has one for the file system and one for an access point.
func TestClaimWithoutPortIsServedOnceThereIsOne(t *testing.T) {
	t.Parallel()
	f := newDriverFixture(t)
	f.startManager(nil, func(o *loops.Options) { o.Range.Count = 2 })
	first := f.NewClaim("first", f.class)
	f.waitForPoint(first)
	second := f.NewClaim("second", f.class)
	f.expectCondition(second, status.WaitsForFileSystem, "no port is left", "--stunnel-port-count")
	f.deleteClaims(first)
	f.waitForPoint(second)
}

// TestManyAccessPoints: AWS limits how often they are created, and makes none twice.
func TestManyAccessPoints(t *testing.T) {
	t.Parallel()
	count := 60
	if everyCrash {
		count = 1000
	}
	f := newDriverFixture(t)
	limit := rate.NewLimiter(50, 10)
	f.EFS.Intercept(func(call efstest.Call) error {
		if !call.After && !limit.Allow() {
			return &smithy.GenericAPIError{Code: "ThrottlingException", Message: "Rate exceeded"}
		}
		return nil
	})
	f.startManager(nil, func(o *loops.Options) { o.Range = ports.Range{Base: 61000, Count: 2000} })
	claims := make([]*corev1.PersistentVolumeClaim, count)
	var group sync.WaitGroup
	for part := range 10 {
		group.Go(func() {
			for i := part; i < count; i += 10 {
				claims[i] = f.NewClaim(fmt.Sprintf("claim-%04d", i), f.class)
			}
		})
	}
	group.Wait()
	f.waitForBound(claims...)
	used := map[string]bool{}
	for _, volume := range f.provisionedVolumes(t.Context()) {
		used[portOption(&volume)], used[volume.Annotations[wellknown.AnnotationAccessPointID]] = true, true
	}
	if calls := f.EFS.Calls(); calls.Created != count || calls.Found != 0 || f.EFS.AccessPoints() != count || len(used) != 2*count {
		t.Errorf("for %d claims there are %d access points, %d ports and ids, and the calls %+v", count, f.EFS.AccessPoints(), len(used), calls)
	}
}

// TestSharedVolumeOnAnAccessPointOfAClaimOwnsNothing: it is on one of the claim's, which stays with its directory.
func TestSharedVolumeOnAnAccessPointOfAClaimOwnsNothing(t *testing.T) {
	f := newInstalledFixture(t)
	f.useDriverClass()
	f.startManager(nil)
	claim := f.NewClaim("data", f.class)
	volume, point := f.waitForPoint(claim)
	f.writeFile(point.Path)
	object := f.create(f.Team, "shared", v1alpha1.SharedVolumeSpec{AccessPointID: point.ID})
	if p := f.waitForReady(object); portOption(p.volume) != portOption(volume) {
		t.Errorf("it has %s, the claim %s", portOption(p.volume), portOption(volume))
	}
	f.delete(object)
	f.waitForDeleted(object)
	f.syncPoint(claim)
	if _, exists := f.EFS.AccessPoint(point.Token); !exists {
		t.Error("the access point was deleted with the SharedVolume")
	}
	f.expectFile(point.Path)
}

// syncPoint makes sure that the manager has seen what happened before: it serves another claim.
func (f *fixture) syncPoint(claim *corev1.PersistentVolumeClaim) {
	f.Helper()
	f.waitForPoint(f.NewClaim(claim.Name+"-later", f.class))
}

// TestWithoutClassOfTheDriverNoAccessPointIsAskedFor whatever else happens.
func TestWithoutClassOfTheDriverNoAccessPointIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.EFS.FailAccessPoints(errors.New("no permission"))
	claim := f.provision("data", f.class).claim
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	if calls := f.EFS.Calls(); calls.Points != 0 {
		t.Errorf("the calls are %+v", calls)
	}
}
