//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

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
