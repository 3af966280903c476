package objects_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

func TestStrategicMerge(t *testing.T) {
	is := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "v", UID: "1", ResourceVersion: "7", Finalizers: []string{"a", "b"}, Labels: map[string]string{"x": "y"},
		},
		Spec: corev1.PersistentVolumeSpec{MountOptions: []string{"port=1"}},
	}
	tests := map[string]struct {
		change func(*corev1.PersistentVolume)
		want   string
	}{
		"nothing differs":    {func(*corev1.PersistentVolume) {}, `{"metadata":{"resourceVersion":"7","uid":"1"}}`},
		"of another version": {func(v *corev1.PersistentVolume) { v.UID, v.ResourceVersion = "2", "8" }, `{"metadata":{"resourceVersion":"7","uid":"1"}}`},
		"a list":             {func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"port=2"} }, `{"metadata":{"resourceVersion":"7","uid":"1"},"spec":{"mountOptions":["port=2"]}}`},
		"a finalizer": {
			func(v *corev1.PersistentVolume) { v.Finalizers = v.Finalizers[:1] },
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["b"],"$setElementOrder/finalizers":["a"],"resourceVersion":"7","uid":"1"}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			next := is.DeepCopy()
			tt.change(next)
			patch, err := objects.StrategicMerge(is, next)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(patch, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch mismatch (-want +got):\n%s", diff)
			}
		})
	}
	if is.UID != "1" || is.ResourceVersion != "7" {
		t.Error("the object was changed")
	}
}
