// Package objects reads and writes API objects where a cache that is a moment
// behind could cost data. Reads go to the apiserver itself. Writes change and
// delete the very object that was observed, and no later one of its name; they
// patch, because an update would drop the fields that this client is too old for.
package objects

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// Reader reads from the apiserver: every answer is as new as the request.
type Reader struct {
	Client kubernetes.Interface
}

// Costs of lists and reads.
const (
	ManyObjects = parallelReads // up to so many objects are read one by one, which takes as long as one read
	// objectsPerRead is the number of objects of a list that cost as much as one read: a page of 500 takes the
	// manager and the apiserver as long as some 25 reads.
	objectsPerRead = 20
	pageSize       = 500
	parallelReads  = 16 // single reads under way at once
)

// Volume returns a volume, nil if there is none.
func (r Reader) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	object, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return found("volume "+name, object, err)
}

// Claim returns a claim, nil if there is none.
func (r Reader) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	object, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return found("claim "+namespace+"/"+name, object, err)
}

// found returns nil for an object that does not exist.
func found[T any](what string, object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return object, nil
}

// Namespaces returns the named namespaces that exist, by name.
func (r Reader) Namespaces(ctx context.Context, names []string) (map[string]*corev1.Namespace, error) {
	return each(ctx, names, func(ctx context.Context, name string) (*corev1.Namespace, error) {
		object, err := r.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return found("namespace "+name, object, err)
	})
}

// Volumes returns the named volumes that exist, by name. The number of volumes in a cache decides between a list
// and single reads.
func (r Reader) Volumes(ctx context.Context, names []string, cached int) (map[string]*corev1.PersistentVolume, error) {
	return many(ctx, names, cached, r.Volume, "volumes", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Client.CoreV1().PersistentVolumes().List(ctx, o)
	}, func(object *corev1.PersistentVolume) string { return object.Name })
}

// Claims is Volumes for claims.
func (r Reader) Claims(ctx context.Context, names []types.NamespacedName, cached int) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	get := func(ctx context.Context, name types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
		return r.Claim(ctx, name.Namespace, name.Name)
	}
	return many(ctx, names, cached, get, "claims", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
	}, func(object *corev1.PersistentVolumeClaim) types.NamespacedName {
		return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	})
}

// many reads objects from a list where that costs less, by how many of the kind a cache has.
func many[K comparable, T any](
	ctx context.Context, keys []K, cached int, get func(context.Context, K) (*T, error), kind string, page pager.ListPageFunc, key func(*T) K,
) (map[K]*T, error) {
	if len(keys) > ManyObjects && cached <= len(keys)*objectsPerRead {
		return pick(ctx, keys, kind, page, key)
	}
	return each(ctx, keys, get)
}

// each reads objects one by one. get returns nil for one that does not exist.
func each[K comparable, T any](ctx context.Context, keys []K, get func(context.Context, K) (*T, error)) (map[K]*T, error) {
	var mu sync.Mutex // protects found
	found := map[K]*T{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReads)
	for _, key := range keys {
		group.Go(func() error {
			object, err := get(ctx, key)
			if err != nil || object == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found[key] = object
			return nil
		})
	}
	return found, group.Wait()
}

// pick reads a list page by page and keeps only the wanted objects: its memory is that of two pages and of those.
func pick[K comparable, T any](ctx context.Context, wanted []K, kind string, page pager.ListPageFunc, key func(*T) K) (map[K]*T, error) {
	names, found := sets.New(wanted...), make(map[K]*T, len(wanted))
	pages := &pager.ListPager{PageSize: pageSize, PageFn: page}
	if err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if listed, ok := any(item).(*T); ok && names.Has(key(listed)) {
			object := *listed // a pointer into the page would keep all of it
			found[key(listed)] = &object
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind, err)
	}
	return found, nil
}

// OnChange calls a function for each change of an informer's objects, with the object as it was and as
// it is: nil before it was added, and after it was deleted.
func OnChange(changed func(before, after any), informers ...cache.SharedIndexInformer) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(nil, object) },
		UpdateFunc: changed,
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			changed(object, nil)
		},
	}
	var errs []error
	for _, informer := range informers {
		_, err := informer.AddEventHandler(handler)
		errs = append(errs, err)
	}
	return logging.Errors(errs...)
}
