package jobs

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
)

// TestConflictIsTriedAgain has writes lose against those of others: the object is there, so the
// error must go to the queue.
func TestConflictIsTriedAgain(t *testing.T) {
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "any", errors.New("the object has been modified"))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-mount-fs-1-00001", UID: "1"}}
	root := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-root-fs-1", UID: "2"}}
	rootVolume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "efs-root-fs-1", UID: "3"}}
	rootVolume.Spec.NFS = &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress}
	never := background.Record{Annotation: wellknown.AnnotationNextSweep, Value: background.NoSweep}
	for name, write := range map[string]func(context.Context, *Controller) error{
		"Job's end":                func(ctx context.Context, c *Controller) error { return c.endJob(ctx, job) },
		"root claim's annotation":  func(ctx context.Context, c *Controller) error { return c.annotate(ctx, root, never) },
		"root volume's annotation": func(ctx context.Context, c *Controller) error { return c.annotate(ctx, rootVolume, never) },
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(job, root, rootVolume)
			client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, changed })
			loop := &Controller{client: client, options: Options{Log: slog.New(slog.DiscardHandler)}}
			if err := write(t.Context(), loop); !errors.Is(err, changed) {
				t.Errorf("got %v, want the conflict", err)
			}
		})
	}
}
