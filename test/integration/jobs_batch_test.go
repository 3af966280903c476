//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestJobsAreGroupCommits has 200 claims come while one Job runs on each of two file systems.
// All of them ride in the next, and a bad one among them has trouble of its own.
func TestJobsAreGroupCommits(t *testing.T) {
	d := newDrill(t)
	other := d.NewFileSystem()
	bad := filepath.Join(d.Folder(d.fileSystem), d.Team, "claim-100")
	d.check(os.MkdirAll(filepath.Dir(bad), 0o755))
	d.check(os.WriteFile(bad, []byte("in the way"), 0o644))
	gates := []*gate{newGate(), newGate()}
	d.Kubelet.PlayNext(gates[0].fate(), gates[1].fate())
	d.start(nil)

	first := []*corev1.PersistentVolumeClaim{d.claim("first"), d.claimOn(other, "first-of-other")}
	for _, g := range gates {
		d.await(g)
	}
	crowd := d.crowd(200, func(i int) string { return []string{d.fileSystem, other}[i%2] })
	d.awaitAsked(len(crowd) + len(first))
	for _, g := range gates {
		close(g.open)
	}
	refused := crowd[100]
	d.awaitBound(first...)
	for _, claim := range crowd {
		if claim != refused {
			d.awaitBound(claim)
		}
	}
	d.awaitEvent(refused, wellknown.EventProvisioningFailed, "claim-100")
	d.wantFewJobs(d.fileSystem, 101, refused)
	d.wantFewJobs(other, 101, nil)
	d.wantNoEvents(wellknown.EventProvisioningFailed, append(crowd[:100:100], crowd[101:]...))
	d.check(os.Remove(bad))
	d.awaitBound(refused)
}

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

// wantFewJobs wants all claims of a file system in the first Job and those that rode in the
// next, each of them once; but for one that may be tried again and again.
func (d *drill) wantFewJobs(fileSystem string, count int, except *corev1.PersistentVolumeClaim) {
	d.Helper()
	carried, batches := map[string]int{}, 0
	for _, job := range d.jobs(d.Context(), mountjobs.Mount, fileSystem) {
		ops := d.operations(job)
		if except != nil && len(ops) == 1 && ops[0].ClaimUID == string(except.UID) {
			continue
		}
		batches++
		for _, operation := range ops {
			if except == nil || operation.ClaimUID != string(except.UID) || carried[operation.Volume] == 0 {
				carried[operation.Volume]++
			}
		}
	}
	if batches < 2 || batches > 4 {
		d.Errorf("%d claims on %s took %d Jobs", count, fileSystem, batches)
	}
	if len(carried) != count {
		d.Errorf("Jobs on %s carried %d operations, not %d", fileSystem, len(carried), count)
	}
	for volume, times := range carried {
		if times != 1 {
			d.Errorf("the setup of %s was sent %d times", volume, times)
		}
	}
}

func (d *drill) wantNoEvents(reason string, claims []*corev1.PersistentVolumeClaim) {
	d.Helper()
	found, err := d.Client.CoreV1().Events(d.Team).List(d.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	d.check(err)
	for _, event := range found.Items {
		for _, claim := range claims {
			if event.InvolvedObject.UID == claim.UID {
				d.Errorf("claim %s has the event %q", claim.Name, event.Message)
			}
		}
	}
}

// TestJobsHaveRoom has more claims wait than one Job carries, by their number and by the bytes
// of their paths.
func TestJobsHaveRoom(t *testing.T) {
	tests := map[string]struct {
		class  map[string]string
		claims int
		batch  int
		jobs   int // after the first one
	}{
		"for a number": {nil, 25, 10, 3},
		"for bytes":    {map[string]string{"base_path": strings.Repeat("/"+strings.Repeat("a", 200), 4)}, 110, wellknown.DefaultMountJobBatch, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			d.class = d.NewClass("room", tt.class).Name
			g := newGate()
			d.Kubelet.PlayNext(g.fate())
			d.start(nil, func(o *loops.Options) { o.Batch = tt.batch })
			first := d.claim("first")
			d.await(g)
			crowd := d.crowd(tt.claims, func(int) string { return d.fileSystem })
			d.awaitAsked(tt.claims + 1)
			close(g.open)
			d.awaitBound(append(crowd, first)...)
			jobs := d.mountJobs()[1:]
			for _, job := range jobs {
				ops := d.operations(job)
				text, err := operations.Encode(ops)
				if err != nil || len(ops) > tt.batch || len(text) > wellknown.MaxOperationsBytes {
					t.Errorf("Job %s has %d operations, %d bytes, error %v", job.Name, len(ops), len(text), err)
				}
			}
			if len(jobs) < tt.jobs || len(jobs) > tt.jobs+2 {
				t.Errorf("%d Jobs after the first", len(jobs))
			}
			d.wantVolumes(append(crowd, first)...)
		})
	}
}

// TestJobsCarrySetupsAndCleanups has both wait for the same Job.
func TestJobsCarrySetupsAndCleanups(t *testing.T) {
	d := newDrill(t)
	d.start(nil)
	busy, coming, _ := d.setupBesideCleanup(withVolumeName("fresh"))
	d.wantVolumes(busy, coming)
	if jobs := d.mountJobs(); len(jobs) > 4 {
		d.Errorf("%d Jobs", len(jobs))
	}
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
