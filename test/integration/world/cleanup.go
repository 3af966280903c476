package world

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// end removes the world. What is in the namespaces goes first: the namespace controller would
// wait long for pods that have no kubelet. It is not waited for; its grace alone is 5 seconds,
// and nothing can be made in a namespace that is being deleted.
func (w *World) end() {
	if w.Failed() {
		w.Log(w.cluster.Logs(logTail))
	}
	for _, step := range []func(context.Context) error{w.empty, w.removeNamespaces} {
		if err := w.within(patience, step); err != nil {
			w.Errorf("cleaning up: %v", err)
		}
	}
}

const logTail = 10

// leftover is an object that is to go.
type leftover struct {
	object metav1.Object
	remove func(context.Context, string, metav1.DeleteOptions) error
	free   func(context.Context, string) error // of its finalizers
}

// empty deletes what is left, and says so until nothing is.
func (w *World) empty(ctx context.Context) error {
	left, err := w.leftovers(ctx)
	errs := []error{err}
	for _, l := range left {
		err := l.remove(ctx, l.object.GetName(), atOnce())
		if len(l.object.GetFinalizers()) > 0 {
			err = errors.Join(err, l.free(ctx, l.object.GetName()))
		}
		errs = append(errs, fmt.Errorf("%T %s is left", l.object, l.object.GetName()))
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leftovers are in an order in which nothing makes again what was deleted before.
func (w *World) leftovers(ctx context.Context) ([]leftover, error) {
	var left []leftover
	var errs []error
	for _, namespace := range w.namespaces {
		found, err := w.leftoversIn(ctx, namespace)
		left, errs = append(left, found...), append(errs, err)
	}
	found, err := w.leftoversOfCluster(ctx)
	return append(left, found...), errors.Join(append(errs, err)...)
}

var freed = []byte(`{"metadata":{"finalizers":null}}`)

func (w *World) leftoversIn(ctx context.Context, namespace string) ([]leftover, error) {
	all, everything := metav1.ListOptions{}, []leftover{}
	sets, jobs := w.Client.AppsV1().StatefulSets(namespace), w.Client.BatchV1().Jobs(namespace)
	pods, claims := w.Client.CoreV1().Pods(namespace), w.Client.CoreV1().PersistentVolumeClaims(namespace)
	foundSets, err1 := sets.List(ctx, all)
	foundJobs, err2 := jobs.List(ctx, all)
	foundPods, err3 := pods.List(ctx, all)
	foundClaims, err4 := claims.List(ctx, all)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	for i := range foundSets.Items {
		everything = append(everything, leftover{&foundSets.Items[i], sets.Delete, freeWith(sets.Patch)})
	}
	for i := range foundJobs.Items {
		everything = append(everything, leftover{&foundJobs.Items[i], jobs.Delete, freeWith(jobs.Patch)})
	}
	for i := range foundPods.Items {
		everything = append(everything, leftover{&foundPods.Items[i], pods.Delete, freeWith(pods.Patch)})
	}
	for i := range foundClaims.Items {
		everything = append(everything, leftover{&foundClaims.Items[i], claims.Delete, freeWith(claims.Patch)})
	}
	return everything, nil
}

// leftoversOfCluster are those of the world's that have no namespace.
func (w *World) leftoversOfCluster(ctx context.Context) ([]leftover, error) {
	all, everything := metav1.ListOptions{}, []leftover{}
	pvs, classes, nodes := w.Client.CoreV1().PersistentVolumes(), w.Client.StorageV1().StorageClasses(), w.Client.CoreV1().Nodes()
	foundVolumes, err1 := pvs.List(ctx, all)
	foundClasses, err2 := classes.List(ctx, all)
	foundNodes, err3 := nodes.List(ctx, all)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	for i := range foundVolumes.Items {
		if w.hasVolume(&foundVolumes.Items[i]) {
			everything = append(everything, leftover{&foundVolumes.Items[i], pvs.Delete, freeWith(pvs.Patch)})
		}
	}
	for i := range foundClasses.Items {
		if foundClasses.Items[i].Provisioner == w.Provisioner {
			everything = append(everything, leftover{&foundClasses.Items[i], classes.Delete, freeWith(classes.Patch)})
		}
	}
	for i := range foundNodes.Items {
		if slices.Contains(w.Nodes, foundNodes.Items[i].Name) {
			everything = append(everything, leftover{&foundNodes.Items[i], nodes.Delete, freeWith(nodes.Patch)})
		}
	}
	return everything, nil
}

// freeWith makes of a client's Patch what takes the finalizers off.
func freeWith[T any](patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		_, err := patch(ctx, name, types.MergePatchType, freed, metav1.PatchOptions{})
		return err
	}
}

// hasVolume says whether a volume is of this world, whoever made it.
func (w *World) hasVolume(pv *corev1.PersistentVolume) bool {
	if pv.Annotations[wellknown.AnnotationProvisionedBy] == w.Provisioner {
		return true
	}
	if ref := pv.Spec.ClaimRef; ref != nil && slices.Contains(w.namespaces, ref.Namespace) {
		return true
	}
	for _, id := range w.fileSystems() {
		if pv.Name == volumes.RootName(id) || pv.Annotations[wellknown.AnnotationFileSystemID] == id {
			return true
		}
	}
	return false
}

func (w *World) removeNamespaces(ctx context.Context) error {
	var errs []error
	for _, name := range w.namespaces {
		err := w.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
