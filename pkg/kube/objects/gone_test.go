package objects_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

// TestIsGone has the words of the apiserver, which an integration test compares with a real one's.
func TestIsGone(t *testing.T) {
	resource := schema.GroupResource{Resource: "persistentvolumes"}
	conflict := func(text string) error { return apierrors.NewConflict(resource, "uid-mismatch", errors.New(text)) }
	invalid := func(path string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, "pv", field.ErrorList{field.Invalid(field.NewPath("metadata", path), "x", "field is immutable")})
	}
	terminating := apierrors.NewForbidden(resource, "pv", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"no error":                             {nil, false},
		"not found":                            {apierrors.NewNotFound(resource, "pv"), true},
		"wrapped":                              {fmt.Errorf("deleting: %w", apierrors.NewNotFound(resource, "pv")), true},
		"delete of another uid":                {conflict("the UID in the precondition (1) does not match the UID in record (2). The object might have been deleted and then recreated"), true},
		"delete of another uid, in storage":    {conflict(`StorageError: invalid object, Code: 4, Key: /registry/persistentvolumes/pv, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 1, UID in object meta: 2`), true},
		"patch of what was deleted meanwhile":  {conflict("uid mismatch: the provided object specified uid 1, and no existing object was found"), true},
		"patch of another uid":                 {invalid("uid"), true},
		"a write that lost against others":     {conflict("the object has been modified; please apply your changes to the latest version and try again"), false},
		"another resourceVersion":              {conflict("the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). The object might have been modified"), false},
		"another resourceVersion, in storage":  {conflict("Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: 2"), false},
		"a webhook's conflict":                 {conflict("quota is being computed"), false},
		"invalid for another reason":           {invalid("labels"), false},
		"its namespace is being deleted":       {terminating, true},
		"forbidden":                            {apierrors.NewForbidden(resource, "pv", errors.New("no")), false},
		"already there":                        {apierrors.NewAlreadyExists(resource, "pv"), false},
		"an apiserver that cannot be reached":  {errors.New("connection refused"), false},
		"another error with the words of ours": {errors.New("uid mismatch: so it says"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := objects.IsGone(tt.err); got != tt.want {
				t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}
