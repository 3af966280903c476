//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// waitForPolls waits until the manager has polled the EFS API so many more times.
func (f *fixture) waitForPolls(count int) {
	f.Helper()
	before := f.EFS.Calls().List
	f.Eventually("the manager polls", func(context.Context) error {
		if polls := f.EFS.Calls().List - before; polls < count {
			return fmt.Errorf("%d times", polls)
		}
		return nil
	})
}

// TestClaimOnAnUnknownFileSystemStartsAPoll: long before the next regular one.
func TestClaimOnAnUnknownFileSystemStartsAPoll(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t, func(o *loops.Options) { o.PollingInterval = time.Hour })
	f.WaitForRootClaim(f.fileSystem)
	late := fmt.Sprintf("fs-%dx2", f.Number)
	if id := f.NewFileSystem(); id != late {
		t.Fatalf("the new file system is %s", id)
	}
	f.waitForBound(f.createClaimOn(late, "data"))
}

// TestFileSystemWithIPv6OnlyIsProvisioned: the table has its address in the keys that the original ignores.
func TestFileSystemWithIPv6OnlyIsProvisioned(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	address := netip.MustParseAddr("fd00:1::4")
	id := f.NewFileSystem(func(fs *efs.FileSystem) {
		fs.MountTargets[0].Address, fs.MountTargets[0].IPv6 = netip.Addr{}, address
	})
	f.waitForBound(f.createClaimOn(id, "data"))
	table, err := f.Table(t.Context())
	f.check(err)
	target := table.Targets[id]
	if target.IPv6BySubnet["subnet-a"] != address || target.IPv6ByZone["us-east-1a"] != address || len(target.AddressBySubnet)+len(target.AddressByZone) > 0 {
		t.Errorf("the table has %+v", target)
	}
}

// sweepThatCannotMount leaves a sweep Job whose pod holds the root claim and never starts.
func (f *fixture) sweepThatCannotMount(fileSystem string) {
	f.Helper()
	claim := f.createClaimOn(fileSystem, "swept")
	f.waitForBound(claim)
	f.Kubelet.QueueBehavior(kubelet.Behavior{}, kubelet.Behavior{FailedMount: "mount.nfs: Connection refused"})
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	f.Eventually("a sweep is created", func(ctx context.Context) error {
		jobs, err := f.Client.BatchV1().Jobs(f.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool {
			return strings.HasPrefix(j.Name, wellknown.SweepJobPrefix+fileSystem)
		}) {
			err = errors.New("there is none")
		}
		return err
	})
}

// TestDeletedFileSystemReleasesItsVolumes: the finalizers are removed at once, and the target when no
// volume is left. The other file system's volumes keep theirs.
func TestDeletedFileSystemReleasesItsVolumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gone := f.NewFileSystem()
	f.startManager(nil, func(o *loops.Options) { o.PollingInterval = 200 * time.Millisecond })
	kept, lost := f.createClaim("kept"), f.createClaimOn(gone, "lost")
	keptVolume, lostVolume := f.waitForBound(kept), f.waitForBound(lost)
	port := ports.VolumeOf(lostVolume).Port
	f.sweepThatCannotMount(gone)

	f.EFS.Remove(gone)
	f.waitForEvent(lostVolume, wellknown.EventFileSystemGone, gone)
	f.waitForVolume(lostVolume.Name, "has no finalizer of the manager", func(volume *corev1.PersistentVolume) string {
		if slices.Contains(volume.Finalizers, wellknown.FinalizerVolume) {
			return "it still has it"
		}
		return ""
	})
	f.waitForPolls(3)
	table, err := f.Table(t.Context())
	f.check(err)
	if table.Targets[gone].Port != port {
		t.Errorf("the target is removed while a volume names it: %v", table.Targets)
	}
	f.deleteClaims(lost)
	f.WaitForVolumeDeleted(lost)
	f.Eventually("the target is removed", func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if _, found := table.Targets[gone]; err == nil && (found || !slices.Contains(table.Retired, port)) {
			err = fmt.Errorf("targets %v, retired %v", table.Targets, table.Retired)
		}
		return err
	})
	f.waitForVolumeDeleted(volumes.RootName(gone))
	_, root := volumes.RootObjects(gone, 0, f.Namespace)
	f.waitForClaimDeleted(root)
	volume, err := f.volumes().Get(t.Context(), keptVolume.Name, metav1.GetOptions{})
	if err != nil || !slices.Contains(volume.Finalizers, wellknown.FinalizerVolume) {
		t.Errorf("the other file system's volume: %v, error %v", volume.Finalizers, err)
	}
	f.expectVolumes(kept)
	f.WaitForJobsReleased() // also those that have filled the trash of the file system that is gone
}
