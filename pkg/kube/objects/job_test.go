package objects_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

func TestDeleteJob(t *testing.T) {
	resource := schema.GroupResource{Group: "batch", Resource: "jobs"}
	conflict := apierrors.NewConflict(resource, "job", errors.New("the object has been modified"))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "1"}}
	for name, tt := range map[string]struct{ answer, want error }{
		"deleted":                       {nil, nil},
		"gone":                          {apierrors.NewNotFound(resource, "job"), nil},
		"lost against others":           {conflict, conflict},
		"another Job has the name":      {apierrors.NewConflict(resource, "job", errors.New("the UID in the precondition (1) does not match")), nil},
		"the apiserver does not answer": {errBroken, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			var sent metav1.DeleteOptions
			client.PrependReactor("delete", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
					sent = deletion.DeleteOptions
				}
				return true, nil, tt.answer
			})
			if err := objects.DeleteJob(t.Context(), client, job, metav1.DeletePropagationForeground); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			foreground := metav1.DeletePropagationForeground
			want := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("1"), PropagationPolicy: &foreground}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("options mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateJob(t *testing.T) {
	resource := schema.GroupResource{Group: "batch", Resource: "jobs"}
	refused := apierrors.NewForbidden(resource, "job", errors.New("quota"))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	for name, tt := range map[string]struct {
		answer, want error
		created      bool
	}{
		"created":                       {nil, nil, true},
		"another one has the name":      {apierrors.NewAlreadyExists(resource, "job"), nil, false},
		"refused":                       {refused, refused, false},
		"the apiserver does not answer": {errBroken, errBroken, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, job, tt.answer })
			created, err := objects.CreateJob(t.Context(), client, job)
			if created != tt.created || !errors.Is(err, tt.want) {
				t.Errorf("got %v, %v, want %v, %v", created, err, tt.created, tt.want)
			}
		})
	}
}

var errBroken = errors.New("connection refused")
