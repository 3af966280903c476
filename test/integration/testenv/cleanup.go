package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const logTail = 10

// cleanUp deletes the environment. Objects in the namespaces are deleted first: the namespace
// controller would wait long for pods without a kubelet. The deletion of the namespaces is not waited
// for: its grace alone is 5 seconds, and nothing can be created in them meanwhile.
func (e *Env) cleanUp() {
	if e.Failed() {
		e.Log(e.cluster.Logs(logTail))
	}
	for _, step := range []func(context.Context) error{e.deleteObjects, e.deleteNamespaces} {
		if err := e.pollUntil(timeout, step); err != nil {
			e.Errorf("cleaning up: %v", err)
		}
	}
}

// deleteObjects deletes what is left, and returns an error until nothing is. The order is one in
// which no controller recreates what was deleted before.
func (e *Env) deleteObjects(ctx context.Context) error {
	var errs []error
	for _, namespace := range e.namespaces {
		for _, resource := range []schema.GroupVersionResource{
			{Group: "batch", Version: "v1", Resource: "jobs"},
			{Version: "v1", Resource: "pods"},
			{Version: "v1", Resource: "persistentvolumeclaims"},
		} {
			errs = append(errs, deleteAll(ctx, e.Dynamic.Resource(resource).Namespace(namespace), everything))
		}
	}
	for resource, owns := range map[schema.GroupVersionResource]func(*unstructured.Unstructured) bool{
		{Version: "v1", Resource: "persistentvolumes"}:                       e.ownsVolume,
		{Version: "v1", Resource: "nodes"}:                                   e.ownsNode,
		{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}: e.ownsClass,
	} {
		errs = append(errs, deleteAll(ctx, e.Dynamic.Resource(resource), owns))
	}
	return errors.Join(errs...)
}

var noFinalizers = []byte(`{"metadata":{"finalizers":null}}`)

// deleteAll deletes the owned objects of a resource, and returns an error while there are some.
func deleteAll(ctx context.Context, client dynamic.ResourceInterface, owned func(*unstructured.Unstructured) bool) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		object := &list.Items[i]
		if !owned(object) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s %s is left", object.GetKind(), object.GetName()))
		err := client.Delete(ctx, object.GetName(), immediately())
		if err == nil && len(object.GetFinalizers()) > 0 {
			_, err = client.Patch(ctx, object.GetName(), types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func everything(*unstructured.Unstructured) bool { return true }

func (e *Env) ownsNode(node *unstructured.Unstructured) bool {
	return slices.Contains(e.Nodes, node.GetName())
}

func (e *Env) ownsClass(class *unstructured.Unstructured) bool {
	provisioner, _, _ := unstructured.NestedString(class.Object, "provisioner")
	return provisioner == e.Provisioner
}

// ownsVolume reports whether a volume belongs to this environment, whoever created it.
func (e *Env) ownsVolume(pv *unstructured.Unstructured) bool {
	annotations := pv.GetAnnotations()
	namespace, _, _ := unstructured.NestedString(pv.Object, "spec", "claimRef", "namespace")
	if annotations[wellknown.AnnotationProvisionedBy] == e.Provisioner || slices.Contains(e.namespaces, namespace) {
		return true
	}
	return slices.ContainsFunc(e.fileSystems(), func(id string) bool {
		return pv.GetName() == volumes.RootName(id) || annotations[wellknown.AnnotationFileSystemID] == id
	})
}

func (e *Env) deleteNamespaces(ctx context.Context) error {
	var errs []error
	for _, name := range e.namespaces {
		err := e.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
