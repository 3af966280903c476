//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

func TestSharedVolumeOfAPathHasAVolumeAndAClaim(t *testing.T) {
	f := newInstalledFixture(t)
	f.makeDirectory("/data")
	f.startManager(nil, f.allowPaths)
	object := f.create(f.Team, "one", v1alpha1.SharedVolumeSpec{Path: "/data", ReadOnly: true})
	p := f.waitForReady(object)
	spec := p.volume.Spec
	if spec.NFS == nil || spec.NFS.Server != "127.0.0.1" || spec.NFS.Path != "/data" || !spec.NFS.ReadOnly || !slices.Contains(spec.MountOptions, "ro") {
		t.Errorf("the volume has %+v and the options %q", spec.NFS, spec.MountOptions)
	}
	if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || spec.StorageClassName != "" || portOption(p.volume) != fmt.Sprintf("port=%d", f.portRange().Base) {
		t.Errorf("the volume is %+v", spec)
	}
	status := f.waitForStatus(object, v1alpha1.Ready, "").Status
	if status.ClaimRef == nil || status.ClaimRef.Name != "pvc-one" || status.ObservedGeneration != 1 || status.Message != "" || len(status.Conditions) != 1 {
		t.Errorf("the status is %+v", status)
	}
	f.waitForEvent(object, wellknown.EventProvisioningSucceeded, "pvc-one")
	f.delete(object)
	f.waitForDeleted(object)
	f.expectFile("/data")
}

func TestSharedVolumesOfOneAccessPointShareATunnel(t *testing.T) {
	f := newInstalledFixture(t)
	other := f.Named("other")
	f.NewNamespace(other)
	f.startManager(nil)
	point := f.createAccessPoint(1)
	spec := v1alpha1.SharedVolumeSpec{AccessPointID: point, IAM: true}
	one, two := f.create(f.Team, "data", spec), f.create(other, "data", spec)
	port, p := portOption(f.waitForReady(one).volume), f.waitForReady(two)
	if got := portOption(p.volume); got != port || port == fmt.Sprintf("port=%d", f.portRange().Base) {
		t.Errorf("the volumes have %s and %s", port, got)
	}
	if p.volume.Spec.NFS.Path != "/" || p.volume.Spec.NFS.ReadOnly {
		t.Errorf("got %+v", p.volume.Spec.NFS)
	}
	table, err := f.Table(t.Context())
	f.check(err)
	target := table.Targets[f.fileSystem]
	if tunnel := target.AccessPoints[point]; fmt.Sprintf("port=%d", tunnel.Port) != port || !tunnel.IAM || target.IAM {
		t.Errorf("the table has %+v, the volume %s", target, port)
	}
	f.delete(one)
	f.waitForDeleted(one)
	if table, err = f.Table(t.Context()); err != nil || len(table.Targets[f.fileSystem].AccessPoints) != 1 {
		t.Errorf("the other one's tunnel is removed, too: %+v, %v", table, err)
	}
	f.delete(two)
	f.waitForDeleted(two)
	f.Eventually("the port is released", func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if err == nil && len(table.Targets[f.fileSystem].AccessPoints) > 0 {
			err = fmt.Errorf("the table has %+v", table.Targets)
		}
		return err
	})
}

// TestSharedVolumesAreServedWhileTheirAPIIsInstalled: the manager notices that it is installed, and that
// it is deleted with all objects.
func TestSharedVolumesAreServedWhileTheirAPIIsInstalled(t *testing.T) {
	f := newSharedVolumeFixture(t)
	f.startManager(nil)
	f.waitForBound(f.createClaim("before"))
	for round := range 2 {
		f.install()
		f.waitForReady(f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{AccessPointID: f.createAccessPoint(round)}))
		f.uninstall()
		_, err := f.claims(f.Team).Get(t.Context(), "pvc-data", metav1.GetOptions{})
		if err := testenv.WantNotFound(err); err != nil {
			t.Errorf("the claim: %v", err)
		}
	}
	f.waitForBound(f.createClaim("after"))
}

// TestInvalidSharedVolumesAreRefusedByTheAPIServer, as are changes of a valid one.
func TestInvalidSharedVolumesAreRefusedByTheAPIServer(t *testing.T) {
	f := newInstalledFixture(t)
	point := f.createAccessPoint(1)
	for name, tt := range map[string]struct {
		spec v1alpha1.SharedVolumeSpec
		want string
	}{
		"neither":             {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1"}, "set one of accessPointID and path"},
		"both":                {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: point, Path: "/a"}, "set one of accessPointID and path"},
		"no file system":      {v1alpha1.SharedVolumeSpec{AccessPointID: point}, "spec.fileSystemID"},
		"a path upwards":      {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "/a/../b"}, "components . and .."},
		"a relative path":     {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "a"}, "spec.path"},
		"the root":            {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "/"}, "spec.path"},
		"a mount option":      {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1,port=1", AccessPointID: point}, "spec.fileSystemID"},
		"a path in the id":    {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1/../x"}, "spec.accessPointID"},
		"two lines in the id": {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1\nx"}, "spec.accessPointID"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := f.tryCreate(f.Team, "data", tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	object := f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	for _, change := range []string{`{"accessPointID":"fsap-2"}`, `{"iam":true}`, `{"readOnly":true}`, `{"accessPointID":null,"path":"/a"}`} {
		_, err := f.objects(f.Team).Patch(t.Context(), object.Name, types.MergePatchType, []byte(`{"spec":`+change+`}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "delete and recreate it with the other values; the data stays on the file system") {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

// waitForHealed waits for a claim and a volume that are bound, and that check accepts.
func (f sharedVolumeFixture) waitForHealed(o *v1alpha1.SharedVolume, check func(pair) error) pair {
	f.Helper()
	var p pair
	f.Eventually("claim and volume are repaired", func(ctx context.Context) (err error) {
		if p, err = f.pairOf(ctx, o); err != nil {
			return err
		}
		object, err := f.get(ctx, o)
		if err != nil {
			return err
		}
		bound := p.claim.Status.Phase == corev1.ClaimBound && p.volume.Status.Phase == corev1.VolumeBound &&
			p.claim.DeletionTimestamp == nil && p.volume.DeletionTimestamp == nil &&
			p.volume.Spec.ClaimRef != nil && p.volume.Spec.ClaimRef.UID == p.claim.UID && object.Status.Phase == v1alpha1.Ready
		if !bound {
			return fmt.Errorf("the claim is %s, the volume %s, the object %+v", p.claim.Status.Phase, p.volume.Status.Phase, object.Status)
		}
		return check(p)
	})
	return p
}

// TestSharedVolumeIsRepaired: also while a pod uses it.
func TestSharedVolumeIsRepaired(t *testing.T) {
	f := newInstalledFixture(t)
	f.startManager(nil)
	object := f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{AccessPointID: f.createAccessPoint(1)})
	patch := func(text string) func(pair) {
		return func(p pair) { f.patchVolume(p.volume.Name, text) }
	}
	before := f.waitForReady(object)
	stop := func() {}
	for _, tt := range []struct {
		name                string
		damage              func(pair)
		newClaim, newVolume bool
	}{
		{"the claim is deleted", func(p pair) { f.deleteClaims(p.claim) }, true, false},
		{"the volume is deleted", func(p pair) { f.deleteVolume(p.volume.Name) }, false, true},
		{"the port is changed", patch(`{"spec":{"mountOptions":["port=1"]}}`), false, false},
		{"the claimRef is removed", patch(`{"spec":{"claimRef":null}}`), false, false},
		{"the claim's uid is removed", patch(`{"spec":{"claimRef":{"uid":null}}}`), false, false},
	} {
		tt.damage(before)
		before = f.waitForHealed(object, func(after pair) error {
			switch {
			case (before.claim.UID != after.claim.UID) != tt.newClaim:
				return fmt.Errorf("%s: the claim's uid was %s and is %s", tt.name, before.claim.UID, after.claim.UID)
			case (before.volume.UID != after.volume.UID) != tt.newVolume:
				return fmt.Errorf("%s: the volume's uid was %s and is %s", tt.name, before.volume.UID, after.volume.UID)
			case portOption(before.volume) != portOption(after.volume) || len(before.volume.Spec.MountOptions) != len(after.volume.Spec.MountOptions):
				return fmt.Errorf("%s: the options are %q", tt.name, after.volume.Spec.MountOptions)
			}
			return nil
		})
		stop()
		stop = f.startPod(before.claim) // from now on, the claim is in use
	}
	stop()
	f.waitForEvent(object, wellknown.EventSharedVolumeRepaired, "unprotect volume: it is being deleted")
	f.delete(object)
	f.waitForDeleted(object)
}

// TestSharedVolumeInUseIsDeletedWhenItsPodEnds: another manager does the rest.
func TestSharedVolumeInUseIsDeletedWhenItsPodEnds(t *testing.T) {
	f := newInstalledFixture(t)
	f.makeDirectory("/data")
	first := f.startManager(nil, f.allowPaths)
	object := f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{Path: "/data"})
	stop := f.startPod(f.waitForReady(object).claim)
	f.delete(object)
	f.waitForStatus(object, v1alpha1.Deleting, "pvc-data goes when no pod uses it")
	if p, err := f.pairOf(t.Context(), object); err != nil || p.volume.DeletionTimestamp != nil || p.claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("a pod uses them, and they are %+v, %v", p, err)
	}
	first.halt()
	stop()
	f.startManager(nil, f.allowPaths)
	f.waitForDeleted(object)
	f.expectFile("/data")
}

// TestManagerThatCrashesAtAnyWriteOfASharedVolume: the scenario ends as without the crash.
func TestManagerThatCrashesAtAnyWriteOfASharedVolume(t *testing.T) {
	newInstalledFixture(t) // for all runs
	run := func(t *testing.T, point *crash.Point) {
		t.Helper()
		f := newSharedVolumeFixture(t)
		f.startManagers(point)
		f.runSharedVolume(f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{AccessPointID: f.createAccessPoint(1)}))
		t.Log(point)
	}
	counting := &crash.Point{Ignore: tableWrites}
	t.Run("without a crash", func(t *testing.T) { run(t, counting) })
	for _, point := range crashPoints(1, len(counting.Writes()), tableWrites) {
		t.Run(point.String(), func(t *testing.T) { run(t, point) })
	}
}
