package caches

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func anyMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "data", Namespace: "team", UID: "1", ResourceVersion: "7",
		Labels:      map[string]string{wellknown.LabelFileSystemID: "fs-1"},
		Annotations: map[string]string{wellknown.AnnotationPath: "/team/data", wellknown.AnnotationFileSystemID: "fs-1"},
		Finalizers:  []string{wellknown.FinalizerVolume},
	}
}

func gibibytes(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func modes() []corev1.PersistentVolumeAccessMode {
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// TestTrimKeepsWhatLoopsRead: memory that is shared must say what it said.
func TestTrimKeepsWhatLoopsRead(t *testing.T) {
	class := "shared"
	tests := map[string]runtime.Object{
		"claim": &corev1.PersistentVolumeClaim{
			ObjectMeta: anyMeta(),
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: modes(),
				Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("1Gi")},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes(), Capacity: gibibytes("1Gi")},
		},
		"claim that has grown": &corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("2Gi")}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: gibibytes("1Gi")},
		},
		"claim of nothing": &corev1.PersistentVolumeClaim{},
		"volume": &corev1.PersistentVolume{
			ObjectMeta: anyMeta(),
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class, AccessModes: modes(), Capacity: gibibytes("1Gi"),
				MountOptions: []string{"hard", "port=20490"},
				ClaimRef:     &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data", UID: "1"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/team/data"},
				},
			},
		},
		"volume with no path": &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}},
		}},
		"volume of another kind": &corev1.PersistentVolume{},
	}
	for name, object := range tests {
		t.Run(name, func(t *testing.T) {
			want := object.DeepCopyObject()
			trimmed, err := newTrimmer().trim(object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, trimmed); diff != "" {
				t.Errorf("object mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTrimKeepsOperationsThatAreTriedAgain, while the Jobs exist that tried them.
func TestTrimKeepsOperationsThatAreTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		unsuccessful, unreleased bool
		want                     bool
	}{
		"done":                {want: false},
		"done, to be used":    {unreleased: true, want: true},
		"refused":             {unsuccessful: true, want: true},
		"refused, to be used": {unreleased: true, want: true},
	} {
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.AnnotationOperations: "[]", wellknown.AnnotationBatch(2): "[]"}},
			Status:     batchv1.JobStatus{Succeeded: 1},
		}
		if tt.unsuccessful {
			job.Annotations[wellknown.AnnotationUnsuccessful] = wellknown.ValueTrue
		}
		if tt.unreleased {
			job.Finalizers = []string{wellknown.FinalizerOutcome}
		}
		if _, err := newTrimmer().trim(job); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{wellknown.AnnotationOperations, wellknown.AnnotationBatch(2)} {
			if _, kept := job.Annotations[key]; kept != tt.want {
				t.Errorf("%s: %s is kept: %t", name, key, kept)
			}
		}
	}
}

func TestTrimDropsManagedFields(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	if _, err := newTrimmer().trim(claim); err != nil || claim.ManagedFields != nil {
		t.Errorf("got %v, %v; want none", claim.ManagedFields, err)
	}
}

// TestTrimDropsLabelsOfSharedVolumes, which users write and no loop reads.
func TestTrimDropsLabelsOfSharedVolumes(t *testing.T) {
	shared := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "a", "labels": map[string]any{"x": "y"}, "annotations": map[string]any{"x": "y"}, "finalizers": []any{"f"},
	}}}
	if _, err := newTrimmer().trim(shared); err != nil || shared.GetLabels() != nil || shared.GetAnnotations() != nil || len(shared.GetFinalizers()) != 1 {
		t.Errorf("got %v, %v", shared, err)
	}
}

// TestTrimSharesWhatIsTheSame, and nothing else: one map serves all claims of a size.
func TestTrimSharesWhatIsTheSame(t *testing.T) {
	small := newTrimmer()
	claim := func(size, app string) *corev1.PersistentVolumeClaim {
		object := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}},
			Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: gibibytes(size)}},
		}
		if _, err := small.trim(object); err != nil {
			t.Fatal(err)
		}
		if object.Annotations != nil {
			t.Errorf("annotations %v stay", object.Annotations)
		}
		return object
	}
	claims := []*corev1.PersistentVolumeClaim{claim("1Gi", "web"), claim("1Gi", "web"), claim("2Gi", "shop")}
	for i := range 2 * maxRemembered {
		claim("1Gi", fmt.Sprint(i))
	}
	same := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	if !same(claims[0].Labels, claims[1].Labels) || !same(claims[0].Spec.Resources.Requests, claims[1].Spec.Resources.Requests) {
		t.Error("equal claims do not share their maps")
	}
	if claims[2].Labels["app"] != "shop" || claims[2].Spec.Resources.Requests.Storage().String() != "2Gi" {
		t.Errorf("another claim has become %+v", claims[2])
	}
	if len(small.known) > maxRemembered {
		t.Errorf("%d maps are remembered", len(small.known))
	}
}

// TestTrimOfForeignVolumes keeps who has them, and leaves what could be ours as it is.
func TestTrimOfForeignVolumes(t *testing.T) {
	source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}}
	for name, c := range map[string]struct {
		edit  func(*corev1.PersistentVolume)
		whole bool
	}{
		"another provisioner's":     {func(*corev1.PersistentVolume) {}, false},
		"with a file system":        {func(o *corev1.PersistentVolume) { o.Annotations[wellknown.AnnotationFileSystemID] = "fs-1" }, true},
		"with a path":               {func(o *corev1.PersistentVolume) { o.Annotations[wellknown.AnnotationPath] = "/" }, true},
		"of a SharedVolume":         {func(o *corev1.PersistentVolume) { o.Annotations[wellknown.AnnotationSharedVolume] = "a/b" }, true},
		"of the root class":         {func(o *corev1.PersistentVolume) { o.Spec.StorageClassName = wellknown.RootStorageClass }, true},
		"with a root volume's name": {func(o *corev1.PersistentVolume) { o.Name = wellknown.RootVolumePrefix + "fs-1" }, true},
		"NFS": {func(o *corev1.PersistentVolume) {
			o.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas"}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{"a": "b"}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source, ClaimRef: &corev1.ObjectReference{Namespace: "team", Name: "data", UID: "1"}},
				Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
			}
			c.edit(volume)
			want := volume.DeepCopy()
			if !c.whole {
				want.Annotations, want.Spec.PersistentVolumeSource = nil, corev1.PersistentVolumeSource{}
			}
			if _, err := newTrimmer().trim(volume); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, volume); diff != "" {
				t.Errorf("volume mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// What a claim's directory holds is kept once, however often the informer trims the claim.
func TestUsageOfAClaimIsKept(t *testing.T) {
	claim := boundClaim(1, wellknown.DefaultProvisioner)
	want := claim.Annotations[wellknown.AnnotationUsage]
	small := newTrimmer()
	for range 2 {
		if _, err := small.trim(claim); err != nil {
			t.Fatal(err)
		}
		if got := UsageOf(claim); got != want || got == "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, ok := claim.Annotations[wellknown.AnnotationUsage]; ok {
		t.Error("it is among the annotations, too")
	}
}

// managedBy returns the fields that the apiserver records for a writer of an object.
func managedBy(manager string) []metav1.ManagedFieldsEntry {
	written := &metav1.FieldsV1{}
	written.SetRawBytes(make([]byte, 600))
	return []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: written}}
}

func uidNumber(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)) }

// boundClaim returns a claim as the apiserver has it once it is bound.
func boundClaim(n int, provisioner string) *corev1.PersistentVolumeClaim {
	class, mode := "efs-stunnel", corev1.PersistentVolumeFilesystem
	meta := anyMeta()
	meta.Name, meta.Namespace, meta.UID = fmt.Sprintf("data-web-%d", n), fmt.Sprintf("team-%d", n%100), uidNumber(n)
	meta.ResourceVersion, meta.ManagedFields = fmt.Sprint(1_000_000+n), managedBy("kube-controller-manager")
	meta.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web"}
	meta.Annotations = map[string]string{
		"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		wellknown.AnnotationStorageProvisioner: provisioner, wellknown.AnnotationBetaStorageProvisioner: provisioner,
		"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{},"labels":{"app.kubernetes.io/instance":"web"},"name":"data-web-%d","namespace":"team"},"spec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"efs-stunnel"}}`, n),
	}
	if provisioner == wellknown.DefaultProvisioner {
		meta.Annotations[wellknown.AnnotationUsage] = fmt.Sprintf(`{"bytes":%d,"files":%d,"at":"2026-01-02T03:04:05Z"}`, n<<20, n)
	}
	meta.Finalizers = []string{"kubernetes.io/pvc-protection"}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: modes(), VolumeMode: &mode, VolumeName: volumes.VolumeName(uidNumber(n)),
			Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("1Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes(), Capacity: gibibytes("1Gi")},
	}
}
