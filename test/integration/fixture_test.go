//go:build integration

package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// fixture is an environment with one file system and the class "efs".
type fixture struct {
	*testenv.Env
	fileSystem string
	class      string
	linger     time.Duration // of workers, with the managers that are started from now on
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return fixtureIn(newEnv(t))
}

func fixtureIn(env *testenv.Env) *fixture {
	env.Helper()
	return &fixture{Env: env, fileSystem: env.NewFileSystem(), class: env.NewClass("efs", nil).Name}
}

// newFixtureWithManager also starts a manager.
func newFixtureWithManager(t testing.TB, edits ...func(*loops.Options)) *fixture {
	t.Helper()
	f := newFixture(t)
	f.startManager(nil, edits...)
	return f
}

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// portsPerEnv is also the number of file systems that an environment may have.
const portsPerEnv = 40

func (f *fixture) portRange() ports.Range {
	return ports.Range{Base: 33000 + f.Number%700*portsPerEnv, Count: portsPerEnv}
}

func oneGibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func (f *fixture) claims(namespace string) typedcorev1.PersistentVolumeClaimInterface {
	return f.Client.CoreV1().PersistentVolumeClaims(namespace)
}

func (f *fixture) volumes() typedcorev1.PersistentVolumeInterface {
	return f.Client.CoreV1().PersistentVolumes()
}

// createClaim creates a claim of the class, on the file system.
func (f *fixture) createClaim(name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	f.Helper()
	return f.createClaimOn(f.fileSystem, name, edits...)
}

func (f *fixture) createClaimOn(fileSystem, name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	f.Helper()
	on := testenv.WithMatchLabel(wellknown.LabelFileSystemID, fileSystem)
	return f.NewClaim(name, f.class, append([]func(*corev1.PersistentVolumeClaim){on}, edits...)...)
}

// createClaims creates many claims at once, each with a directory of its name.
func (f *fixture) createClaims(count int, edits ...func(i int, claim *corev1.PersistentVolumeClaim)) []*corev1.PersistentVolumeClaim {
	f.Helper()
	claims := make([]*corev1.PersistentVolumeClaim, count)
	var group errgroup.Group
	group.SetLimit(100)
	for i := range claims {
		name := fmt.Sprintf("claim-%03d", i)
		claims[i] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Team, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &f.class,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
					wellknown.LabelFileSystemID: f.fileSystem, wellknown.LabelVolumeName: name,
				}},
			},
		}
		for _, edit := range edits {
			edit(i, claims[i])
		}
		group.Go(func() error {
			created, err := f.claims(f.Team).Create(f.Context(), claims[i], metav1.CreateOptions{})
			if err == nil {
				claims[i] = created
			}
			return err
		})
	}
	f.check(group.Wait())
	return claims
}

func withVolumeName(name string) func(*corev1.PersistentVolumeClaim) {
	return testenv.WithMatchLabel(wellknown.LabelVolumeName, name)
}

func retaining(class *storagev1.StorageClass) {
	policy := corev1.PersistentVolumeReclaimRetain
	class.ReclaimPolicy = &policy
}

func expandable(class *storagev1.StorageClass) {
	yes := true
	class.AllowVolumeExpansion = &yes
}

func waitingForConsumer(class *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
}

// waitForRequests waits until the binder has asked the provisioner for the volumes of so many claims.
func (f *fixture) waitForRequests(count int) {
	f.Helper()
	f.Eventually("the binder asks for volumes", func(ctx context.Context) error {
		found, err := f.claims(f.Team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		asked := 0
		for _, claim := range found.Items {
			if claim.Annotations[wellknown.AnnotationStorageProvisioner] == f.Provisioner {
				asked++
			}
		}
		if asked < count {
			return fmt.Errorf("it asks for %d of %d", asked, count)
		}
		return nil
	})
}

// waitForBound returns the volume of the last claim.
func (f *fixture) waitForBound(claims ...*corev1.PersistentVolumeClaim) (last *corev1.PersistentVolume) {
	f.Helper()
	for _, claim := range claims {
		_, last = f.WaitForBound(claim)
	}
	return last
}

// provisioned is a claim with its volume, as they were when the claim was bound.
type provisioned struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	path   string
}

// provision creates a claim of a class and waits for its volume.
func (f *fixture) provision(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) provisioned {
	f.Helper()
	return f.waitForProvisioned(f.NewClaim(name, class, edits...))
}

// waitForProvisioned waits for a claim's volume, whose directory must exist by then.
func (f *fixture) waitForProvisioned(claim *corev1.PersistentVolumeClaim) provisioned {
	f.Helper()
	claim, volume := f.WaitForBound(claim)
	p := provisioned{claim: claim, volume: volume, path: volume.Annotations[wellknown.AnnotationPath]}
	id := volume.Annotations[wellknown.AnnotationFileSystemID]
	if p.path == "" || volume.Spec.NFS == nil || volume.Spec.NFS.Path != p.path || !f.Exists(id, p.path) {
		f.Errorf("volume %s has the path %q on %s, which does not exist or is not that of its mount\n%s", volume.Name, p.path, id, f.Dump())
	}
	return p
}

// syncAgain makes sure that the manager has synced some claims: it annotates them, and then provisions
// another claim.
func (f *fixture) syncAgain(name string, claims ...*corev1.PersistentVolumeClaim) {
	f.Helper()
	for n := range 3 {
		for _, claim := range claims {
			f.annotate(claim, map[string]any{"example.com/sync": fmt.Sprintf("%s-%d", name, n)})
		}
	}
	f.provision(name, f.class)
}

func (f *fixture) getClaim(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	f.Helper()
	found, err := f.claims(claim.Namespace).Get(f.Context(), claim.Name, metav1.GetOptions{})
	f.check(err)
	return found
}

// deleteClaims does not wait for the deletions.
func (f *fixture) deleteClaims(claims ...*corev1.PersistentVolumeClaim) {
	f.Helper()
	for _, claim := range claims {
		f.check(f.claims(claim.Namespace).Delete(f.Context(), claim.Name, metav1.DeleteOptions{}))
	}
}

func (f *fixture) waitForClaimDeleted(claim *corev1.PersistentVolumeClaim) {
	f.Helper()
	f.WaitForDeleted("claim "+claim.Name, func(ctx context.Context) error {
		_, err := f.claims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		return err
	})
}

// annotate merges annotations into a claim; nil removes one.
func (f *fixture) annotate(claim *corev1.PersistentVolumeClaim, annotations map[string]any) {
	f.Helper()
	f.patchClaim(claim, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

func (f *fixture) patchClaim(claim *corev1.PersistentVolumeClaim, changes map[string]any) {
	f.Helper()
	patch, err := json.Marshal(changes)
	f.check(err)
	_, err = f.claims(claim.Namespace).Patch(f.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	f.check(err)
}

func (f *fixture) requestSize(claim *corev1.PersistentVolumeClaim, size string) {
	f.Helper()
	f.patchClaim(claim, map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}}})
}

// gate holds a container before its program until it is opened.
type gate struct {
	reached chan struct{} // closed when a container has started
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) behavior() kubelet.Behavior {
	return kubelet.Behavior{Before: func(ctx context.Context) {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}}
}

func (f *fixture) waitForGate(g *gate) {
	f.Helper()
	f.Eventually("a container has started", func(context.Context) error {
		select {
		case <-g.reached:
			return nil
		default:
			return errors.New("none has")
		}
	})
}
