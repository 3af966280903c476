//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// crowd makes many claims at once.
func (d *drill) crowd(count int, fileSystemOf func(int) string) []*corev1.PersistentVolumeClaim {
	d.Helper()
	claims := make([]*corev1.PersistentVolumeClaim, count)
	var group sync.WaitGroup
	for i := range claims {
		claims[i] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Team, Name: fmt.Sprintf("claim-%03d", i)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &d.class,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
					wellknown.LabelFileSystemID: fileSystemOf(i),
					wellknown.LabelVolumeName:   fmt.Sprintf("claim-%03d", i),
				}},
			},
		}
		group.Go(func() {
			made, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).Create(d.Context(), claims[i], metav1.CreateOptions{})
			if err != nil {
				d.Error(err)
				return
			}
			claims[i] = made
		})
	}
	group.Wait()
	return claims
}

// awaitAsked waits until the cluster has asked for the volumes of so many claims.
func (d *drill) awaitAsked(count int) {
	d.Helper()
	d.Eventually("the cluster asks for volumes", func(ctx context.Context) error {
		found, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		asked := 0
		for _, claim := range found.Items {
			if claim.Annotations[wellknown.AnnotationStorageProvisioner] == d.Provisioner {
				asked++
			}
		}
		if asked < count {
			return fmt.Errorf("for %d of %d", asked, count)
		}
		return nil
	})
}

// setupBesideCleanup has a claim's setup wait, with the cleanup of another, for the Job of a third
// to end, so that the next Job has both. The volume is that of the claim that came.
func (d *drill) setupBesideCleanup(edit func(*corev1.PersistentVolumeClaim)) (busy, coming *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	d.Helper()
	leaving := d.claim("leaving", withVolumeName("shop"))
	d.awaitBound(leaving)
	g := newGate()
	d.Kubelet.PlayNext(g.fate())
	busy = d.claim("busy")
	d.await(g)
	d.deleteClaim(leaving)
	coming = d.claim("coming", edit)
	d.awaitAsked(2)
	d.awaitReleased(leaving)
	close(g.open)
	volume = d.awaitBound(busy, coming)
	d.AwaitVolumeGone(leaving)
	return busy, coming, volume
}

// A Job that has filled the trash waits for a sweep, and says meanwhile what its setups have made.
// What an administrator deletes then stays deleted, and its data stays where it is.
func TestVolumeThatSomebodyDeletesIsNotMadeAgain(t *testing.T) {
	for name, edit := range map[string]func(*drill, *corev1.PersistentVolume){
		"retained from the start": nil,
		"edited to Retain":        (*drill).editToRetain,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrill(t)
			d.start(nil, func(o *loops.Options) { o.SweepDelay = time.Hour })
			_, kept, volume := d.setupBesideCleanup(func(claim *corev1.PersistentVolumeClaim) {
				if edit == nil {
					claim.Spec.Selector.MatchLabels[wellknown.LabelReclaimPolicy] = "Retain"
				}
			})
			file := filepath.Join(d.Folder(d.fileSystem), volume.Spec.NFS.Path, "file")
			d.check(os.WriteFile(file, []byte("precious"), 0o600))
			if edit != nil {
				edit(d, volume)
			}
			d.deleteClaim(kept)
			d.awaitReleased(kept)
			d.check(d.Client.CoreV1().PersistentVolumes().Delete(t.Context(), volume.Name, metav1.DeleteOptions{}))
			d.AwaitVolumeGone(kept)
			d.awaitBound(d.claim("next"))
			_, err := d.Client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
			if err := wantNotFound(err); err != nil {
				t.Errorf("the volume that was deleted: %v", err)
			}
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		})
	}
}

func (d *drill) editToRetain(volume *corev1.PersistentVolume) {
	d.patchPolicy(volume.Name, corev1.PersistentVolumeReclaimRetain)
	d.Eventually("the finalizer goes", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		if err == nil && slices.Contains(object.Finalizers, wellknown.FinalizerVolume) {
			err = errors.New("it is there")
		}
		return err
	})
}

func (d *drill) awaitReleased(claim *corev1.PersistentVolumeClaim) {
	d.Helper()
	d.awaitVolumeReleased(volumes.VolumeName(claim.UID))
}

func (d *drill) awaitVolumeReleased(name string) {
	d.Helper()
	d.Eventually("volume "+name+" is Released", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && object.Status.Phase != corev1.VolumeReleased {
			err = errors.New("it is " + string(object.Status.Phase))
		}
		return err
	})
}
