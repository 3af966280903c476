package volumes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func dataSourceRef(group string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Thing", Name: "x"}
	}
}

func TestIsRequested(t *testing.T) {
	ours := newClass(nil)
	theirs := newClass(nil, func(c *storagev1.StorageClass) { c.Provisioner = "example.com/nfs" })
	patient := newClass(nil, waitForFirstConsumer)
	now := metav1.Now()
	foreign := "example.com"
	tests := map[string]struct {
		class *storagev1.StorageClass
		edit  func(*corev1.PersistentVolumeClaim)
		want  bool
	}{
		"a pending claim of ours": {ours, func(*corev1.PersistentVolumeClaim) {}, true},
		"the beta annotation names us": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{wellknown.AnnotationBetaStorageProvisioner: provisioner}
		}, true},
		"the newer annotation wins over the beta one": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[wellknown.AnnotationBetaStorageProvisioner] = "example.com/nfs"
		}, true},
		"no annotation names a provisioner":        {ours, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false},
		"the annotation names another provisioner": {ours, annotated(wellknown.AnnotationStorageProvisioner, "example.com/nfs"), false},
		"a class of another provisioner":           {theirs, func(*corev1.PersistentVolumeClaim) {}, false},
		"a claim without a class":                  {ours, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }, false},
		"an empty old annotation hides the class":  {ours, annotated(wellknown.AnnotationStorageClass, ""), false},
		"a class that does not exist":              {nil, func(*corev1.PersistentVolumeClaim) {}, false},
		"a bound claim":                            {ours, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase, c.Spec.VolumeName = corev1.ClaimBound, "pv" }, false},
		"a claim that names a volume":              {ours, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, false},
		"a claim that lost its volume":             {ours, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, false},
		"a claim that is being deleted":            {ours, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }, false},
		"a claim for a populator":                  {ours, dataSourceRef("example.com"), false},
		"a claim for a populator in the older field": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &foreign, Kind: "Thing", Name: "x"}
		}, false},
		"a claim that Velero restores":        {ours, selecting(map[string]string{"velero.io/dynamic-pv-restore": "team.data.x7k2p"}), false},
		"a copy of a snapshot, to be refused": {ours, dataSourceRef("snapshot.storage.k8s.io"), true},
		"a copy of a claim, to be refused":    {ours, dataSourceRef(""), true},
		"WaitForFirstConsumer without a node": {patient, func(*corev1.PersistentVolumeClaim) {}, false},
		"WaitForFirstConsumer with a node":    {patient, annotated(wellknown.AnnotationSelectedNode, "n1"), true},
		"a claim that was refused before":     {ours, annotated(wellknown.AnnotationRejected, "true"), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := volumes.IsRequested(newClaim(tt.edit), tt.class, provisioner); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestClassName(t *testing.T) {
	tests := map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want string
	}{
		"the spec names it":        {func(*corev1.PersistentVolumeClaim) {}, "efs"},
		"the old annotation wins":  {annotated(wellknown.AnnotationStorageClass, "old"), "old"},
		"even when it is empty":    {annotated(wellknown.AnnotationStorageClass, ""), ""},
		"without both there is no": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := volumes.ClassName(newClaim(tt.edit)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
