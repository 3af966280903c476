package objects

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// StatusWriter writes the status of cluster-scoped objects that no other program writes.
type StatusWriter struct {
	Client   dynamic.Interface
	Resource schema.GroupVersionResource
	Kind     string
}

// Write replaces the status of an object, and creates the object if there is none. The error is NotFound
// if the cluster does not have the object's definition.
func (w StatusWriter) Write(ctx context.Context, name string, status any, owners ...metav1.OwnerReference) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", w.Kind, name, err)
	}
	if err = w.patch(ctx, name, patch); apierrors.IsNotFound(err) {
		if err = w.create(ctx, name, owners); err == nil || apierrors.IsAlreadyExists(err) {
			err = w.patch(ctx, name, patch)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", w.Kind, name, err)
	}
	return nil
}

func (w StatusWriter) patch(ctx context.Context, name string, patch []byte) error {
	_, err := w.Client.Resource(w.Resource).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (w StatusWriter) create(ctx context.Context, name string, owners []metav1.OwnerReference) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(w.Resource.GroupVersion().WithKind(w.Kind))
	object.SetName(name)
	object.SetOwnerReferences(owners)
	_, err := w.Client.Resource(w.Resource).Create(ctx, object, metav1.CreateOptions{})
	return err
}
