//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// apiError is what the AWS SDK makes of an answer that is none.
type apiError struct{ code, message string }

func (e apiError) Error() string        { return e.code + ": " + e.message }
func (e apiError) ErrorCode() string    { return e.code }
func (e apiError) ErrorMessage() string { return e.message }

// TestDiscoveryInTrouble has the API fail in every way, for many polls each. Nothing is removed,
// claims go on, and each trouble is told once.
func TestDiscoveryInTrouble(t *testing.T) {
	d := newDrill(t)
	other := d.NewFileSystem()
	d.poll()
	want := portsOf(d.awaitTable("both", func(table ports.Table) string { return missingOf(table, map[string]int{d.fileSystem: 0, other: 0}) }))
	claims := []*corev1.PersistentVolumeClaim{d.claim("data"), d.claimOn(other, "others")}
	d.awaitBound(claims...)
	object := d.configMap()
	for name, tr := range map[string]struct {
		begin, end func()
		told       []string
	}{
		"throttling": {
			func() { d.EFS.FailList(apiError{"ThrottlingException", "Rate exceeded"}) }, func() { d.EFS.FailList(nil) },
			[]string{"ThrottlingException: Rate exceeded", "--efs-polling-interval"},
		},
		"access denied": {
			func() { d.EFS.FailList(apiError{"AccessDeniedException", "not authorized to perform it"}) }, func() { d.EFS.FailList(nil) },
			[]string{"AccessDeniedException", "elasticfilesystem:DescribeFileSystems"},
		},
		"no network": {
			func() { d.EFS.FailList(context.DeadlineExceeded) }, func() { d.EFS.FailList(nil) },
			[]string{"deadline exceeded", "VPC endpoint"},
		},
		"nothing listed": {
			func() { d.EFS.Hide(d.fileSystem, true); d.EFS.Hide(other, true) }, func() { d.EFS.Hide(d.fileSystem, false); d.EFS.Hide(other, false) },
			[]string{"lists no file system", "--aws-region"},
		},
		"no mount targets": {
			func() { d.EFS.FailMountTargets(other, errors.New("mount targets are hidden")) }, func() { d.EFS.FailMountTargets(other, nil) },
			[]string{"mount targets of " + other, "mount targets are hidden"},
		},
		"no answer about one": {
			func() { d.EFS.Hide(other, true); d.EFS.FailExists(other, errors.New("nobody knows")) },
			func() { d.EFS.Hide(other, false); d.EFS.FailExists(other, nil) },
			[]string{"whether " + other + " still exist", "nobody knows"},
		},
		"half a listing": {func() { d.EFS.Truncate(true) }, func() { d.EFS.Truncate(false) }, nil},
	} {
		tr.begin()
		d.awaitPolls(wellknown.MissingListings + 2)
		if len(tr.told) > 0 {
			event := d.awaitEvent(object, wellknown.EventDiscoveryFailed, tr.told...)
			if event.Count != 1 {
				t.Errorf("%s: told %d times", name, event.Count)
			}
		}
		table, err := d.Table()
		d.check(err)
		if diff := cmp.Diff(want, portsOf(table)); diff != "" {
			t.Errorf("%s: the table has changed: %s", name, diff)
		}
		claim := d.claim(fmt.Sprintf("meanwhile-%d", len(claims)))
		d.awaitBound(claim)
		claims = append(claims, claim)
		tr.end()
		d.awaitPolls(2)
	}
	if found := d.provisioned(d.Context()); len(found) != len(claims) {
		t.Errorf("%d volumes for %d claims", len(found), len(claims))
	}
	d.awaitBound(d.claimOn(other, "well-again"))
}

// sweepThatCannotMount leaves a sweep Job whose pod holds the root claim and never starts.
func (d *drill) sweepThatCannotMount(fileSystem string) {
	d.Helper()
	claim := d.claimOn(fileSystem, "swept")
	d.awaitBound(claim)
	d.Kubelet.PlayNext(kubelet.Fate{}, kubelet.Fate{FailedMount: "mount.nfs: Connection refused"})
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	d.Eventually("a sweep begins", func(ctx context.Context) error {
		jobs, err := d.Client.BatchV1().Jobs(d.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool {
			return strings.HasPrefix(j.Name, wellknown.SweepJobPrefix+fileSystem)
		}) {
			err = errors.New("there is no such Job")
		}
		return err
	})
}

// TestDiscoveryOfADeletedFileSystem lets go of its volumes, and of its target when none of them
// is left. What else there is stays.
func TestDiscoveryOfADeletedFileSystem(t *testing.T) {
	d := newDrill(t)
	doomed := d.NewFileSystem()
	d.poll()
	kept, lost := d.claim("kept"), d.claimOn(doomed, "lost")
	keptVolume, lostVolume := d.awaitBound(kept), d.awaitBound(lost)
	port := ports.VolumeOf(lostVolume).Port
	d.sweepThatCannotMount(doomed)

	d.EFS.Remove(doomed)
	d.awaitEvent(lostVolume, wellknown.EventFileSystemGone, doomed)
	d.Eventually("the volume has no finalizer of ours", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, lostVolume.Name, metav1.GetOptions{})
		if err == nil && slices.Contains(object.Finalizers, wellknown.FinalizerVolume) {
			err = errors.New("it has it still")
		}
		return err
	})
	d.awaitPolls(3)
	table, err := d.Table()
	d.check(err)
	if table.Targets[doomed].Port != port {
		t.Errorf("the target has left the table while a volume names it: %v", portsOf(table))
	}
	d.deleteClaim(lost)
	d.AwaitVolumeGone(lost)
	d.awaitTable("one target", func(table ports.Table) string {
		if _, there := table.Targets[doomed]; there || !slices.Contains(table.Retired, port) {
			return fmt.Sprintf("targets %v, retired %v", portsOf(table), table.Retired)
		}
		return ""
	})
	d.awaitEvent(d.configMap(), wellknown.EventFileSystemGone, doomed)
	d.Eventually("root volume and root claim are gone", func(ctx context.Context) error {
		_, err1 := d.Client.CoreV1().PersistentVolumes().Get(ctx, volumes.RootName(doomed), metav1.GetOptions{})
		_, err2 := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Get(ctx, volumes.RootName(doomed), metav1.GetOptions{})
		if !apierrors.IsNotFound(err1) || !apierrors.IsNotFound(err2) {
			return errors.Join(errors.New("not yet"), err1, err2)
		}
		return nil
	})
	object, err := d.Client.CoreV1().PersistentVolumes().Get(t.Context(), keptVolume.Name, metav1.GetOptions{})
	if err != nil || !slices.Contains(object.Finalizers, wellknown.FinalizerVolume) {
		t.Errorf("the other file system's volume: %v, error %v", object.Finalizers, err)
	}
	d.wantVolumes(kept)
	d.AwaitJobsUsed() // those that have filled its trash, too
}

// TestDiscoveryOfAnUnpinnedFileSystem has another account's file system unpinned by mistake. The API
// does not know it, and its volumes are as they were.
func TestDiscoveryOfAnUnpinnedFileSystem(t *testing.T) {
	d := newDrill(t)
	d.EFS.Remove(d.fileSystem)
	d.NewFileSystem() // without any, a listing says nothing
	d.writeTable(wellknown.PinnedConfigMap, fmt.Sprintf(`
efs_stunnel_targets:
  %s: {mount_target_ip_by_subnet: {subnet-a: 10.8.8.8}, dns_name: nfs.example.com}
`, d.fileSystem))
	d.poll()
	claim := d.claim("data")
	bound := d.awaitBound(claim)
	d.check(d.Client.CoreV1().ConfigMaps(d.Namespace).Delete(t.Context(), wellknown.PinnedConfigMap, metav1.DeleteOptions{}))
	d.awaitTable("missed it", func(table ports.Table) string {
		if table.Targets[d.fileSystem].NotFoundSince.IsZero() {
			return "no time since when it is not found"
		}
		return ""
	})
	d.awaitPolls(6)
	now, err := d.Client.CoreV1().PersistentVolumes().Get(t.Context(), bound.Name, metav1.GetOptions{})
	d.check(err)
	if !slices.Contains(now.Finalizers, wellknown.FinalizerVolume) {
		t.Errorf("the volume has lost its finalizer\n%s", d.Story())
	}
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	if d.Exists(d.fileSystem, bound.Spec.NFS.Path) {
		t.Errorf("the volume went, and its directory is there\n%s", d.Story())
	}
}
