package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// FromUnstructured reads an object of the dynamic client. The error says which field is not
// what it should be.
func FromUnstructured(object *unstructured.Unstructured) (*SharedVolume, error) {
	shared := &SharedVolume{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, shared); err != nil {
		return nil, fmt.Errorf("reading SharedVolume %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	// Lists leave it out, and events need it.
	shared.SetGroupVersionKind(GroupVersion().WithKind(SharedVolumeKind))
	return shared, nil
}

// ToUnstructured is the object for the dynamic client.
func (s *SharedVolume) ToUnstructured() (*unstructured.Unstructured, error) {
	typed := s.DeepCopy()
	typed.SetGroupVersionKind(GroupVersion().WithKind(SharedVolumeKind))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("writing SharedVolume %s/%s: %w", s.Namespace, s.Name, err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
