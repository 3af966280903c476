//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestDiscoveryHealsRoots harms root volume and root claim in every way, with strangers waiting
// for the volume all the time. Claims go on, and no stranger ever gets it.
func TestDiscoveryHealsRoots(t *testing.T) {
	harms := map[string]func(*drill, *manager) *manager{
		"claim deleted":          (*drill).loseRootClaim,
		"volume deleted":         (*drill).loseRootVolume,
		"both deleted":           (*drill).loseRoots,
		"claim replaced":         (*drill).replaceRootClaim,
		"wrong port":             (*drill).misleadRootVolume,
		"wrong mount options":    (*drill).misdirectRootVolume,
		"claimed by a stranger":  (*drill).giveRootVolumeAway,
		"unbound":                (*drill).unbindRootVolume,
		"deletable, other class": (*drill).misfileRootVolume,
	}
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			strangers := d.strangers("early")
			m := d.start(nil)
			d.awaitBound(d.claim("before"))
			strangers = append(strangers, d.strangers("late")...)
			harm(d, m)
			d.awaitBound(d.claim("after"))
			d.awaitHealthyRoot()
			for _, stranger := range strangers {
				d.wantPending(stranger)
			}
		})
	}
}

// strangers ask for the root volume by its name, by its class, and by both.
func (d *drill) strangers(when string) []*corev1.PersistentVolumeClaim {
	d.Helper()
	root := volumes.RootName(d.fileSystem)
	ask := func(name, class, volume string) *corev1.PersistentVolumeClaim {
		return d.NewClaim(when+"-"+name, class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = volume })
	}
	return []*corev1.PersistentVolumeClaim{
		ask("by-name", "", root),
		ask("by-class", wellknown.RootStorageClass, ""),
		ask("by-both", wellknown.RootStorageClass, root),
		ask("by-our-class", d.class, root),
	}
}

// wantPending wants a claim never to have got a volume; one that had would be Bound or Lost.
func (d *drill) wantPending(claim *corev1.PersistentVolumeClaim) {
	d.Helper()
	now, err := d.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(d.Context(), claim.Name, metav1.GetOptions{})
	d.check(err)
	if now.Status.Phase != corev1.ClaimPending || now.Spec.VolumeName != claim.Spec.VolumeName {
		d.Errorf("claim %s is %s, with volume %q\n%s", claim.Name, now.Status.Phase, now.Spec.VolumeName, d.Story())
	}
}

// awaitHealthyRoot waits until nothing is to be corrected.
func (d *drill) awaitHealthyRoot() {
	d.Helper()
	d.Eventually("the root volume is well", func(ctx context.Context) error {
		table, err := d.tableNow(ctx)
		if err != nil {
			return err
		}
		name := volumes.RootName(d.fileSystem)
		pair := volumes.RootPair{FileSystemID: d.fileSystem, Port: table.Targets[d.fileSystem].Port, Namespace: d.Namespace}
		if pair.Volume, err = d.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pair.Claim, err = d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if why := pair.Ready(); why != "" {
			return fmt.Errorf("it is not: %s", why)
		}
		if !slices.Contains(pair.Volume.Spec.MountOptions, "lookupcache=none") {
			return fmt.Errorf("mount options %q", pair.Volume.Spec.MountOptions)
		}
		return nil
	})
}

func (d *drill) loseRootClaim(m *manager) *manager {
	d.check(d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Delete(d.Context(), volumes.RootName(d.fileSystem), metav1.DeleteOptions{}))
	return m
}

func (d *drill) loseRootVolume(m *manager) *manager {
	d.check(d.Client.CoreV1().PersistentVolumes().Delete(d.Context(), volumes.RootName(d.fileSystem), metav1.DeleteOptions{}))
	return m
}

func (d *drill) loseRoots(m *manager) *manager { return d.loseRootVolume(d.loseRootClaim(m)) }

// replaceRootClaim has the volume remember a claim that is gone: no manager is there to see it.
func (d *drill) replaceRootClaim(m *manager) *manager {
	m.halt()
	d.forgetPods()
	d.loseRootClaim(m)
	name := volumes.RootName(d.fileSystem)
	d.awaitGone("the root claim", func(ctx context.Context) error {
		_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Create(d.Context(), volumes.RootClaim(d.fileSystem, d.Namespace), metav1.CreateOptions{})
	d.check(err)
	d.Eventually("the root volume is Released", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && object.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", object.Status.Phase)
		}
		return err
	})
	return d.start(nil)
}

// forgetPods deletes the Jobs that are over, whose pods hold the root claim.
func (d *drill) forgetPods() {
	d.Helper()
	for _, job := range d.mountJobs() {
		d.patchJob(&job, `{"metadata":{"finalizers":null}}`)
		background := metav1.DeletePropagationBackground
		err := d.Client.BatchV1().Jobs(d.Namespace).Delete(d.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &background})
		if !apierrors.IsNotFound(err) {
			d.check(err)
		}
	}
}

func (d *drill) patchRootVolume(patch string) {
	d.Helper()
	_, err := d.Client.CoreV1().PersistentVolumes().Patch(d.Context(), volumes.RootName(d.fileSystem), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	d.check(err)
}

func (d *drill) misleadRootVolume(m *manager) *manager {
	d.patchRootVolume(`{"spec":{"mountOptions":["vers=4.1","port=20999"]}}`)
	return m
}

func (d *drill) misdirectRootVolume(m *manager) *manager {
	d.patchRootVolume(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/mount-options":"soft,port=2049"}}}`)
	return m
}

func (d *drill) giveRootVolumeAway(m *manager) *manager {
	m.halt()
	d.patchRootVolume(fmt.Sprintf(`{"spec":{"claimRef":{"namespace":%q,"name":"nobody","uid":null,"resourceVersion":null}}}`, d.Team))
	return d.start(nil)
}

// unbindRootVolume leaves a claimRef that names no claim's uid.
func (d *drill) unbindRootVolume(m *manager) *manager {
	d.patchRootVolume(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	return m
}

func (d *drill) misfileRootVolume(m *manager) *manager {
	d.patchRootVolume(`{"spec":{"persistentVolumeReclaimPolicy":"Delete","storageClassName":"other"},"metadata":{"labels":{"root_key":"other"}}}`)
	return m
}

// awaitOtherRootClaim deletes the root claim and waits for the next one.
func (d *drill) awaitOtherRootClaim() {
	d.Helper()
	roots, name := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace), volumes.RootName(d.fileSystem)
	before, err := roots.Get(d.Context(), name, metav1.GetOptions{})
	d.check(err)
	d.check(roots.Delete(d.Context(), name, metav1.DeleteOptions{}))
	d.Eventually("there is another root claim", func(ctx context.Context) error {
		now, err := roots.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (now.UID == before.UID || now.Status.Phase != corev1.ClaimBound) {
			err = fmt.Errorf("it is %s, deleted at %v", now.Status.Phase, now.DeletionTimestamp)
		}
		return err
	})
}

// TestRootClaimIsFreedOfAJobThatWaitsForItsSweep: the sweep needs a root claim, the claim waits
// for the Job's pod, and the Job for the sweep.
func TestRootClaimIsFreedOfAJobThatWaitsForItsSweep(t *testing.T) {
	d := newDrill(t)
	startManager(d.World, nil, func(o *loops.Options) { o.PollingInterval, o.SweepDelay = 200*time.Millisecond, 5*time.Second })
	claim := d.claim("data")
	volume := d.awaitBound(claim)
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	d.awaitOtherRootClaim()
	d.Eventually("the trash is swept", func(context.Context) error {
		if d.Exists(d.fileSystem, filepath.Join(wellknown.TrashDirectory, volume.Name)) {
			return errors.New("the directory is in it still")
		}
		return nil
	})
	d.AwaitJobsUsed()
}
