package v1alpha1_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
)

func matches(t *testing.T, s schema, text string) bool {
	t.Helper()
	return len(text) <= s.MaxLength && regexp.MustCompile(s.Pattern).MatchString(text)
}

func full() *v1alpha1.SharedVolume {
	return &v1alpha1.SharedVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "efs-stunnel.gnuthought.com/v1alpha1", Kind: "SharedVolume"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", Finalizers: []string{"a/b"}, Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1", Path: "/a", IAM: true, ReadOnly: true},
		Status: v1alpha1.SharedVolumeStatus{
			Phase: v1alpha1.Ready, ClaimRef: &v1alpha1.ClaimReference{Name: "pvc-data"}, Message: "m", ObservedGeneration: 3,
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Bound", Message: "m", ObservedGeneration: 3,
				LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)),
			}},
		},
	}
}

func TestConversionLosesNothing(t *testing.T) {
	there, err := full().ToUnstructured()
	if err != nil {
		t.Fatal(err)
	}
	back, err := v1alpha1.FromUnstructured(there)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back); diff != "" {
		t.Errorf("object mismatch (-want +got):\n%s", diff)
	}
}

// TestKindIsAlwaysThere: items of lists have none, and events are about an object of a kind.
func TestKindIsAlwaysThere(t *testing.T) {
	got, err := v1alpha1.FromUnstructured(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fileSystemID": "fs-1"}}})
	if err != nil || got.GroupVersionKind() != v1alpha1.GroupVersion().WithKind(v1alpha1.SharedVolumeKind) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConversionOfSomethingElse(t *testing.T) {
	if got, err := v1alpha1.FromUnstructured(&unstructured.Unstructured{Object: map[string]any{"spec": "x"}}); err == nil {
		t.Errorf("got %v", got)
	}
}

func TestCopiesShareNothing(t *testing.T) {
	original := full()
	copied, ok := original.DeepCopyObject().(*v1alpha1.SharedVolume)
	if diff := cmp.Diff(full(), copied); diff != "" || !ok {
		t.Fatalf("copy mismatch (-want +got):\n%s", diff)
	}
	copied.Labels["a"], copied.Finalizers[0] = "x", "x"
	copied.Status.ClaimRef.Name, copied.Status.Conditions[0].Reason = "x", "x"
	if diff := cmp.Diff(full(), original); diff != "" {
		t.Errorf("the original was changed (-want +got):\n%s", diff)
	}
	if none := (*v1alpha1.SharedVolume)(nil); none.DeepCopy() != nil || none.DeepCopyObject() != nil {
		t.Error("a copy of nothing is something")
	}
}
