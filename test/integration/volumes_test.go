//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func (f *fixture) deleteVolume(name string) {
	f.Helper()
	f.check(f.volumes().Delete(f.Context(), name, metav1.DeleteOptions{}))
}

func (f *fixture) patchVolume(name, patch string) {
	f.Helper()
	_, err := f.volumes().Patch(f.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	f.check(err)
}

func (f *fixture) setReclaimPolicy(name string, policy corev1.PersistentVolumeReclaimPolicy) {
	f.Helper()
	f.patchVolume(name, fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy))
}

// waitForVolume waits until problem returns "" for a volume.
func (f *fixture) waitForVolume(name, what string, problem func(*corev1.PersistentVolume) string) {
	f.Helper()
	f.Eventually("volume "+name+" "+what, func(ctx context.Context) error {
		volume, err := f.volumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := problem(volume); text != "" {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
}

// waitForPhase waits for what the binder writes.
func (f *fixture) waitForPhase(name string, phase corev1.PersistentVolumePhase) {
	f.Helper()
	f.waitForVolume(name, "is "+string(phase), func(volume *corev1.PersistentVolume) string {
		if volume.Status.Phase != phase {
			return "it is " + string(volume.Status.Phase)
		}
		return ""
	})
}

func (f *fixture) waitForReleased(claim *corev1.PersistentVolumeClaim) {
	f.Helper()
	f.waitForPhase(volumes.VolumeName(claim.UID), corev1.VolumeReleased)
}

// waitForFinalizer waits until a volume has the finalizer with policy Delete, and lacks it with Retain.
func (f *fixture) waitForFinalizer(name string) {
	f.Helper()
	f.waitForVolume(name, "has the finalizer for its policy", func(volume *corev1.PersistentVolume) string {
		deletes := volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		if has := slices.Contains(volume.Finalizers, wellknown.FinalizerVolume); has != deletes {
			return fmt.Sprintf("with policy %s it has %q", volume.Spec.PersistentVolumeReclaimPolicy, volume.Finalizers)
		}
		return ""
	})
}

func (f *fixture) waitForVolumeDeleted(name string) {
	f.Helper()
	f.WaitForDeleted("volume "+name, func(ctx context.Context) error {
		_, err := f.volumes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// provisionedVolumes returns the volumes of the environment's provisioner.
func (f *fixture) provisionedVolumes(ctx context.Context) []corev1.PersistentVolume {
	f.Helper()
	found, err := f.volumes().List(ctx, metav1.ListOptions{})
	f.check(err)
	return slices.DeleteFunc(found.Items, func(volume corev1.PersistentVolume) bool {
		return volume.Annotations[wellknown.AnnotationProvisionedBy] != f.Provisioner
	})
}

// expectVolumes expects exactly the volumes of some claims, each with its directory and its entry in
// the ledger.
func (f *fixture) expectVolumes(claims ...*corev1.PersistentVolumeClaim) {
	f.Helper()
	owned := map[string]bool{}
	for _, names := range f.owners() {
		for _, name := range names {
			owned[name] = true
		}
	}
	for _, claim := range claims {
		name := volumes.VolumeName(claim.UID)
		volume, err := f.volumes().Get(f.Context(), name, metav1.GetOptions{})
		f.check(err)
		if path := volume.Annotations[wellknown.AnnotationPath]; path == "" || !f.Exists(f.fileSystem, path) {
			f.Errorf("volume %s has the path %q, which does not exist", name, path)
		}
		if !owned[name] {
			f.Errorf("the ledger does not have volume %s", name)
		}
	}
	found := f.provisionedVolumes(f.Context())
	if len(found) != len(claims) || len(owned) != len(claims) {
		f.Errorf("%d volumes, %d owners for %d claims\n%s", len(found), len(owned), len(claims), f.Dump())
	}
}

// originalVolume creates a volume as the original system did, with its directory and a file in it, for
// a claim of the team. Its name is Named(what).
func (f *fixture) originalVolume(what, claim string) *corev1.PersistentVolume {
	f.Helper()
	path := "/" + f.Team + "/" + what
	f.check(os.MkdirAll(f.local(path), 0o777))
	f.writeFile(path)
	volume := f.forgedVolume(f.Named(what), path)
	delete(volume.Annotations, wellknown.AnnotationPath)
	volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: f.Team, Name: claim}
	created, err := f.volumes().Create(f.Context(), volume, metav1.CreateOptions{})
	f.check(err)
	return created
}
