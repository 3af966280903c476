package volumes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func dataSourceRef(group string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Thing", Name: "x"}
	}
}

func TestJudge(t *testing.T) {
	ours := newClass(nil)
	theirs := newClass(nil, func(c *storagev1.StorageClass) { c.Provisioner = "example.com/nfs" })
	patient := newClass(nil, waitForFirstConsumer)
	now := metav1.Now()
	foreign := "example.com"
	tests := map[string]struct {
		class *storagev1.StorageClass
		edit  func(*corev1.PersistentVolumeClaim)
		want  volumes.Standing
		waits string
	}{
		"a pending claim that the cluster asks us for is ours": {ours, func(*corev1.PersistentVolumeClaim) {}, volumes.Ours, ""},
		"the beta annotation asks as well": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{wellknown.AnnotationBetaStorageProvisioner: provisioner}
		}, volumes.Ours, ""},
		"the newer annotation wins over the beta one": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[wellknown.AnnotationBetaStorageProvisioner] = "example.com/nfs"
		}, volumes.Ours, ""},
		"a claim that nobody asked for is not ours":      {ours, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, volumes.NotOurs, ""},
		"a claim that another is asked for is not ours":  {ours, annotated(wellknown.AnnotationStorageProvisioner, "example.com/nfs"), volumes.NotOurs, ""},
		"a class of another provisioner is not ours":     {theirs, func(*corev1.PersistentVolumeClaim) {}, volumes.NotOurs, ""},
		"a claim without a class is not ours":            {nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }, volumes.NotOurs, ""},
		"an empty old annotation hides the class":        {nil, annotated(wellknown.AnnotationStorageClass, ""), volumes.NotOurs, ""},
		"a class that does not exist is waited for":      {nil, func(*corev1.PersistentVolumeClaim) {}, volumes.Waiting, `storage class "efs" to exist`},
		"the old annotation names the class to wait for": {nil, annotated(wellknown.AnnotationStorageClass, "old"), volumes.Waiting, `storage class "old" to exist`},
		"a bound claim is done with":                     {ours, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase, c.Spec.VolumeName = corev1.ClaimBound, "pv" }, volumes.NotOurs, ""},
		"a claim that names a volume is done with":       {ours, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, volumes.NotOurs, ""},
		"a claim that lost its volume is not ours":       {ours, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, volumes.NotOurs, ""},
		"a claim that is being deleted is not ours":      {ours, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }, volumes.NotOurs, ""},
		"a populator's claim is left alone":              {ours, dataSourceRef("example.com"), volumes.NotOurs, ""},
		"a populator's claim in the older form is left alone": {ours, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &foreign, Kind: "Thing", Name: "x"}
		}, volumes.NotOurs, ""},
		"a copy of a snapshot is ours, to be refused":           {ours, dataSourceRef("snapshot.storage.k8s.io"), volumes.Ours, ""},
		"a copy of a claim is ours, to be refused":              {ours, dataSourceRef(""), volumes.Ours, ""},
		"a class that waits for a consumer waits for a node":    {patient, func(*corev1.PersistentVolumeClaim) {}, volumes.Waiting, "the scheduler to choose a node for the first pod"},
		"a class that waits for a consumer goes on with a node": {patient, annotated(wellknown.AnnotationSelectedNode, "n1"), volumes.Ours, ""},
		"a refused claim is still ours":                         {ours, annotated(wellknown.AnnotationRejected, "true"), volumes.Ours, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, waits := volumes.Judge(newClaim(tt.edit), tt.class, provisioner)
			if got != tt.want || waits != tt.waits {
				t.Errorf("got %v %q, want %v %q", got, waits, tt.want, tt.waits)
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
