package claims

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
)

// TestConflictIsTriedAgain has every write of this loop lose against other writers, once: the
// object is there, so the error goes to the queue and the next sync writes. Where the conflict is
// about the uid, the object is gone, and nothing is left to do.
func TestConflictIsTriedAgain(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid}}
	object, onItsWay := newVolume(t), newVolume(t)
	onItsWay.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	onItsWay.Finalizers = []string{wellknown.FinalizerVolume}
	size := resource.MustParse("2Gi")
	errOfUID := apierrors.NewConflict(persistentVolumes, object.Name, errors.New("the UID in the precondition (1) does not match the UID in record (2)"))
	for name, c := range map[string]struct {
		change   decide.Change
		verb     string
		resource string
	}{
		"claim's annotation":   {decide.Annotate{Object: claim, Annotations: map[string]any{wellknown.AnnotationRejected: wellknown.ValueTrue}}, "patch", "persistentvolumeclaims"},
		"claim's node":         {decide.Annotate{Object: claim, Annotations: map[string]any{wellknown.AnnotationSelectedNode: nil}}, "patch", "persistentvolumeclaims"},
		"claim's size":         {decide.ExpandClaim{Claim: claim, Object: object, Size: size}, "patch", "persistentvolumeclaims"},
		"volume's size":        {decide.ExpandVolume{Object: object, Claim: claim, Size: size}, "patch", "persistentvolumes"},
		"deletion":             {decide.DeleteVolume{Object: object}, "delete", "persistentvolumes"},
		"end of a deletion":    {decide.DeleteVolume{Object: onItsWay}, "patch", "persistentvolumes"},
		"removal of finalizer": {decide.RemoveFinalizer{Object: object}, "patch", "persistentvolumes"},
		"addition of one":      {decide.AddFinalizer{Object: object}, "patch", "persistentvolumes"},
		"adoption":             {decide.AdoptVolume{Object: object}, "patch", "persistentvolumes"},
	} {
		t.Run(name, func(t *testing.T) {
			state := decide.State{UID: uid, Claim: claim, Targets: usable()}
			for conflict, gone := range map[error]bool{errChanged: false, errOfUID: true} {
				client := fake.NewClientset(claim, object)
				writes := 0
				client.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					writes++
					return writes == 1, nil, conflict
				})
				loop := loopOf(t, record.NewFakeRecorder(10), client)
				err := loop.apply(t.Context(), state, planOf(c.change))
				if gone {
					if err != nil {
						t.Errorf("the object is gone: got %v, want no error", err)
					}
					continue
				}
				if !errors.Is(err, conflict) {
					t.Errorf("got %v, want the conflict", err)
				}
				if err := loop.apply(t.Context(), state, planOf(c.change)); err != nil || writes != 2 {
					t.Errorf("the next sync: %v after %d writes, want a second write", err, writes)
				}
			}
		})
	}
}
