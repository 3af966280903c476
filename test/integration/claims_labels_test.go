//go:build integration

package integration_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

func withExpressions(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"gold"}},
	}}
}

// TestLabelsOfClaims has the volume of one claim with every label, and all that is said of it.
func TestLabelsOfClaims(t *testing.T) {
	s := newClaimsWorld(t)
	s.AwaitRoot(s.fileSystem)
	for range 3 {
		s.NewFileSystem()
	}
	labels := map[string]string{
		wellknown.LabelVolumeName: "shared_data-1", wellknown.LabelFileSystemID: s.fileSystem, wellknown.LabelReclaimPolicy: "Retain",
		"tier": "gold", "example.com/team": "blue",
	}
	v := s.bound("data", s.class, world.WithLabels(labels), withModes(corev1.ReadWriteOnce, corev1.ReadOnlyMany))
	if diff := cmp.Diff(labels, v.object.Labels); diff != "" {
		t.Errorf("labels mismatch (-want +got):\n%s", diff)
	}
	wantAnnotations := map[string]string{
		wellknown.AnnotationProvisionedBy: s.Provisioner, wellknown.AnnotationFileSystemID: s.fileSystem,
		wellknown.AnnotationPath: "/" + s.Team + "/shared_data-1",
	}
	annotations := maps.Clone(v.object.Annotations)
	delete(annotations, "pv.kubernetes.io/bound-by-controller") // the binder's
	if diff := cmp.Diff(wantAnnotations, annotations); diff != "" {
		t.Errorf("annotations mismatch (-want +got):\n%s", diff)
	}
	spec := v.object.Spec
	if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || slices.Contains(v.object.Finalizers, wellknown.FinalizerVolume) {
		t.Errorf("the volume has the policy %s and the finalizers %q", spec.PersistentVolumeReclaimPolicy, v.object.Finalizers)
	}
	if !slices.Equal(spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany}) {
		t.Errorf("the volume has the modes %q", spec.AccessModes)
	}
	if options := strings.Join(spec.MountOptions, ","); options != wellknown.DefaultMountOptions+",port=20490" || spec.NFS.Server != wellknown.LoopbackAddress {
		t.Errorf("the volume is on %s with the options %s", spec.NFS.Server, options)
	}
	if size := spec.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" || spec.StorageClassName != s.class {
		t.Errorf("the volume has the size %s and the class %s", &size, spec.StorageClassName)
	}
	s.awaitTold(v.claim, wellknown.EventProvisioning, "efs-mount-"+s.fileSystem+"-00001", v.path)
	s.awaitTold(v.claim, wellknown.EventProvisioningSucceeded, v.object.Name, v.path, s.fileSystem)
	s.pass("meanwhile", v.claim)
	s.wantTold(v.claim, wellknown.EventProvisioning, 1)
	s.wantTold(v.claim, wellknown.EventProvisioningSucceeded, 1)
	s.wantTold(v.claim, wellknown.EventProvisioningFailed, 0)
}

// TestClaimsFollowTheirClass has the parameters that say where a volume is, and how it is mounted.
func TestClaimsFollowTheirClass(t *testing.T) {
	s := newClaimsWorld(t)
	blue := s.NewFileSystem(func(fs *efs.FileSystem) { fs.Tags = map[string]string{"team": "blue"} })
	tests := map[string]struct {
		parameters map[string]string
		options    []string
		path       string // with NAMESPACE and UID for the claim's; "" is a directory of its own
		fileSystem string // "" is any
		mount      []string
	}{
		"default-file-system": {parameters: map[string]string{"default_file_system_id": blue}, fileSystem: blue},
		"file-systems":        {parameters: map[string]string{"file_system_ids": "fs-0, " + s.fileSystem}, fileSystem: s.fileSystem},
		"file-system-tags":    {parameters: map[string]string{"file_system_tags": "team=blue"}, fileSystem: blue},
		"base-path":           {parameters: map[string]string{"base_path": "/a/b/"}, path: "/a/b/NAMESPACE/base-path-UID"},
		"pattern":             {parameters: map[string]string{"path_pattern": "x-${.PVC.namespace}/${.PVC.name}/${.PVC.uid}"}, path: "/x-NAMESPACE/pattern/UID"},
		"pattern-of-volume":   {parameters: map[string]string{"path_pattern": "${.PV.name}"}, path: "/pvc-UID"},
		"options":             {options: []string{"soft,nfsvers=4.0", "timeo=100"}, mount: []string{"vers=4.0", "soft", "timeo=100", "rsize=1048576"}},
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for name, tt := range tests {
		class := s.NewClass(name, tt.parameters, func(class *storagev1.StorageClass) { class.MountOptions = tt.options })
		claims[name] = s.NewClaim(name, class.Name)
	}
	for name, tt := range tests {
		v := s.await(claims[name])
		want := ownDirectory(v.claim)
		if tt.path != "" {
			want = strings.NewReplacer("NAMESPACE", s.Team, "UID", string(v.claim.UID)).Replace(tt.path)
		}
		if v.path != want {
			t.Errorf("%s: the path is %s, want %s", name, v.path, want)
		}
		if id := v.object.Annotations[wellknown.AnnotationFileSystemID]; tt.fileSystem != "" && id != tt.fileSystem {
			t.Errorf("%s: the file system is %s, want %s", name, id, tt.fileSystem)
		}
		for _, option := range tt.mount {
			if !slices.Contains(v.object.Spec.MountOptions, option) {
				t.Errorf("%s: the mount options are %q, want %s", name, v.object.Spec.MountOptions, option)
			}
		}
		for _, option := range []string{"hard", "vers=4.1", "timeo=600"} {
			if tt.options != nil && slices.Contains(v.object.Spec.MountOptions, option) {
				t.Errorf("%s: the mount options are %q, with the default %s", name, v.object.Spec.MountOptions, option)
			}
		}
	}
}

// TestSameNameSameData has every claim for a name meet the same directory of the same file
// system, however many there are to choose from.
func TestSameNameSameData(t *testing.T) {
	s := newClaimsWorld(t)
	for range 4 {
		s.NewFileSystem()
	}
	for _, name := range []string{"one", "two", "three"} {
		first := s.bound(name+"-first", s.class, called(name))
		second := s.bound(name+"-second", s.class, called(name))
		id := first.object.Annotations[wellknown.AnnotationFileSystemID]
		if second.path != first.path || second.object.Annotations[wellknown.AnnotationFileSystemID] != id {
			t.Errorf("%s is %s of %s, then %s of %s", name, first.path, id, second.path, second.object.Annotations[wellknown.AnnotationFileSystemID])
		}
	}
}
