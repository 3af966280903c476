//go:build integration

package integration_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// forgedVolume looks like a volume of the manager with policy Delete, for a claim that does not exist.
func (f *fixture) forgedVolume(name, path string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			wellknown.AnnotationProvisionedBy: f.Provisioner, wellknown.AnnotationFileSystemID: f.fileSystem, wellknown.AnnotationPath: path,
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      oneGibibyte(),
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              f.class,
			MountOptions:                  []string{fmt.Sprintf("port=%d", f.portRange().Base)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: f.Team, Name: "missing", UID: uuid.NewUUID()},
		},
	}
}

// TestForgedVolumesChangeNoFile: whatever becomes of the objects.
func TestForgedVolumesChangeNoFile(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	victim := f.provision("victim", f.class)
	f.writeFile(victim.path)
	f.makeDirectory("/unowned")
	f.makeDirectory("/original")
	f.syncAgain("before")
	const skipped, failed = wellknown.EventVolumeDeleteSkipped, wellknown.EventVolumeFailedDelete
	tests := map[string]struct {
		path   string
		edit   func(*corev1.PersistentVolume)
		reason string // of its event
		texts  []string
		stays  bool // the object
	}{
		"of-a-missing-claim": {path: victim.path, reason: skipped, texts: []string{"directory kept", victim.volume.Name}},
		"of-another-uid": {path: victim.path, edit: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "victim" },
			reason: skipped, texts: []string{"directory kept", victim.volume.Name}},
		"of-the-victim": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.Name, v.Spec.ClaimRef.UID = "victim", victim.claim.UID
		}},
		"above-the-victim": {path: "/" + f.Team, reason: skipped, texts: []string{"/" + f.Team, "stays"}},
		"of-no-owner":      {path: "/unowned", reason: skipped, texts: []string{"the ledger does not have this volume"}},
		"of-another-path": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/unowned" },
			reason: failed, texts: []string{"nothing is removed", "but its path is"}},
		"of-another-server": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) { v.Spec.NFS.Server = "10.0.0.1" },
			reason: failed, texts: []string{"nothing is removed", "10.0.0.1"}},
		"of-the-root":   {path: "/", stays: true, reason: failed, texts: []string{"nothing is removed"}},
		"of-the-ledger": {path: wellknown.OwnersDirectory, stays: true, reason: failed, texts: []string{"nothing is removed"}},
		"of-the-original-system": {path: "/original", stays: true, // elsewhere it would block the cleanups of others
			edit:   func(v *corev1.PersistentVolume) { delete(v.Annotations, wellknown.AnnotationPath) },
			reason: failed, texts: []string{"not seen bound", "nothing is removed"}},
	}
	before := treeOf(t, f.local("/"))
	forged := map[string]*corev1.PersistentVolume{}
	for name, tt := range tests {
		volume := f.forgedVolume(f.Named(name), tt.path)
		if tt.edit != nil {
			tt.edit(volume)
		}
		created, err := f.volumes().Create(t.Context(), volume, metav1.CreateOptions{})
		f.check(err)
		forged[name] = created
	}
	for name, tt := range tests {
		if tt.reason != "" {
			f.waitForEvent(forged[name], tt.reason, tt.texts...)
		}
		if tt.stays {
			f.waitForPhase(forged[name].Name, corev1.VolumeReleased)
			continue
		}
		f.waitForVolumeDeleted(forged[name].Name)
	}
	f.WaitForJobsReleased()
	if diff := cmp.Diff(before, treeOf(t, f.local("/"))); diff != "" {
		t.Errorf("the file system has changed (-before +after):\n%s", diff)
	}
	for name, tt := range tests {
		count := 0
		if tt.reason != "" {
			count = 1
		}
		f.expectEventCount(forged[name], count, skipped, failed)
	}
}
