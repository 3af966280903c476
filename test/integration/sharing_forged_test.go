//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// forged is a volume that pretends to be ours, of a claim that nobody has, with policy Delete.
func (s *claimsWorld) forged(name, path string, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	s.Helper()
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Named(name),
			Annotations: map[string]string{
				wellknown.AnnotationProvisionedBy: s.Provisioner, wellknown.AnnotationFileSystemID: s.fileSystem, wellknown.AnnotationPath: path,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              s.class,
			MountOptions:                  []string{"port=20490"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.Team, Name: "nobody", UID: uuid.NewUUID()},
		},
	}
	for _, edit := range edits {
		edit(object)
	}
	object, err := s.Client.CoreV1().PersistentVolumes().Create(s.Context(), object, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return object
}

// TestForgedVolumes has volumes that nobody provisioned lead to a victim's directory and to others.
// Whatever becomes of the objects, nothing changes on the file system.
func TestForgedVolumes(t *testing.T) {
	s := newClaimsWorld(t)
	victim := s.bound("victim", s.class)
	s.write(victim.path, "data")
	for _, unowned := range []string{"/unowned", "/original"} {
		s.makeDirectory(unowned, 0o755)
		s.write(unowned, "data")
	}
	s.pass("before")
	tests := map[string]struct {
		path   string
		edit   func(*corev1.PersistentVolume)
		reason string // of its event
		words  []string
		stays  bool // the object
	}{
		"of-nobody": {path: victim.path, reason: wellknown.EventVolumeDeleteSkipped, words: []string{"its directory stays", victim.object.Name}},
		"of-another-life": {path: victim.path, edit: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "victim" },
			reason: wellknown.EventVolumeDeleteSkipped, words: []string{"its directory stays", victim.object.Name}},
		"of-the-victim": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.Name, v.Spec.ClaimRef.UID = "victim", victim.claim.UID
		}},
		"above-the-victim": {path: "/" + s.Team, reason: wellknown.EventVolumeDeleteSkipped, words: []string{"/" + s.Team, "stays"}},
		"of-no-owner":      {path: "/unowned", reason: wellknown.EventVolumeDeleteSkipped, words: []string{"the ledger does not have this volume"}},
		"of-another-path": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/unowned" },
			reason: wellknown.EventVolumeFailedDelete, words: []string{"nothing is removed", "but its path is"}},
		"of-another-server": {path: victim.path, stays: true, edit: func(v *corev1.PersistentVolume) { v.Spec.NFS.Server = "10.0.0.1" },
			reason: wellknown.EventVolumeFailedDelete, words: []string{"nothing is removed", "10.0.0.1"}},
		"of-everything": {path: "/", stays: true, reason: wellknown.EventVolumeFailedDelete, words: []string{"nothing is removed"}},
		"of-the-ledger": {path: wellknown.OwnersDirectory, stays: true, reason: wellknown.EventVolumeFailedDelete, words: []string{"nothing is removed"}},
		"of-the-original-system": {path: "/original", stays: true, // elsewhere it would keep the others from their end
			edit:   func(v *corev1.PersistentVolume) { delete(v.Annotations, wellknown.AnnotationPath) },
			reason: wellknown.EventVolumeFailedDelete, words: []string{"not seen bound", "nothing is removed"}},
	}
	before := s.tree()
	objects := map[string]*corev1.PersistentVolume{}
	for name, tt := range tests {
		if tt.edit == nil {
			tt.edit = func(*corev1.PersistentVolume) {}
		}
		objects[name] = s.forged(name, tt.path, tt.edit)
	}
	for name, tt := range tests {
		if tt.reason != "" {
			s.awaitTold(objects[name], tt.reason, tt.words...)
		}
		if tt.stays {
			s.awaitPhase(objects[name].Name, corev1.VolumeReleased)
			continue
		}
		s.awaitNoVolume(objects[name].Name)
	}
	s.AwaitJobsUsed()
	if diff := cmp.Diff(before, s.tree()); diff != "" {
		t.Errorf("the file system has changed (-before +after):\n%s", diff)
	}
	for name, tt := range tests {
		times := 0
		if tt.reason != "" {
			times = 1
		}
		events := s.told(s.Context(), objects[name], wellknown.EventVolumeDeleteSkipped, wellknown.EventVolumeFailedDelete)
		if timesTold(events) != times {
			t.Errorf("%s: the events %q", name, messages(events))
		}
	}
}

func (s *claimsWorld) awaitNoVolume(name string) {
	s.Helper()
	s.Eventually("volume "+name+" is gone", func(ctx context.Context) error {
		found, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is %s, with the finalizers %q", found.Status.Phase, found.Finalizers)
	})
}

// tree is all that is on the file system: modes, and what is in files.
func (s *claimsWorld) tree() map[string]string {
	s.Helper()
	all, folder := map[string]string{}, s.Folder(s.fileSystem)
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			content = string(data)
		}
		all[name[len(folder):]] = fmt.Sprint(info.Mode(), " ", content)
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}
