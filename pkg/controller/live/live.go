// Package live reads objects from the apiserver itself, where a cache that is
// a moment behind could cost somebody's data.
package live

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// Reader reads. Every answer is as new as the request.
type Reader struct {
	Client kubernetes.Interface
}

// ManyObjects is from where on one list of all is cheaper than single reads.
const ManyObjects = 64

// parallelReads bounds single reads under way at once.
const parallelReads = 16

// Volume is a volume, nil if there is none.
func (r Reader) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	object, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("reading volume %s: %w", name, err)
	}
	return object, nil
}

// Claim is a claim, nil if there is none.
func (r Reader) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	object, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("reading claim %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// NamespaceUIDs are the uids of those of the named namespaces that exist, by name.
func (r Reader) NamespaceUIDs(ctx context.Context, names []string) (map[string]types.UID, error) {
	found, err := each(ctx, names, func(ctx context.Context, name string) (*types.UID, error) {
		object, err := r.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // absence is an answer
		}
		if err != nil {
			return nil, fmt.Errorf("reading namespace %s: %w", name, err)
		}
		return &object.UID, nil
	})
	uids := make(map[string]types.UID, len(found))
	for name, uid := range found {
		uids[name] = *uid
	}
	return uids, err
}

// Volumes are those of the named volumes that exist, by name.
func (r Reader) Volumes(ctx context.Context, names []string) (map[string]*corev1.PersistentVolume, error) {
	if len(names) > ManyObjects {
		return r.AllVolumes(ctx)
	}
	return each(ctx, names, r.Volume)
}

// AllVolumes are the cluster's, by name.
func (r Reader) AllVolumes(ctx context.Context) (map[string]*corev1.PersistentVolume, error) {
	found := map[string]*corev1.PersistentVolume{}
	err := all(ctx, "volumes", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Client.CoreV1().PersistentVolumes().List(ctx, o)
	}, func(object *corev1.PersistentVolume) { found[object.Name] = object })
	return found, err
}

// Claims are those of the named claims that exist, by name.
func (r Reader) Claims(ctx context.Context, names []types.NamespacedName) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	if len(names) <= ManyObjects {
		return each(ctx, names, func(ctx context.Context, name types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
			return r.Claim(ctx, name.Namespace, name.Name)
		})
	}
	return r.AllClaims(ctx)
}

// AllClaims are the cluster's, by name.
func (r Reader) AllClaims(ctx context.Context) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	found := map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
	err := all(ctx, "claims", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
	}, func(object *corev1.PersistentVolumeClaim) {
		found[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = object
	})
	return found, err
}

// each reads objects one by one. The functions it is given return nil for what is not there.
func each[K comparable, T any](ctx context.Context, keys []K, read func(context.Context, K) (*T, error)) (map[K]*T, error) {
	var mu sync.Mutex // protects found
	found := map[K]*T{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReads)
	for _, key := range keys {
		group.Go(func() error {
			object, err := read(ctx, key)
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

// all reads every page.
func all[T runtime.Object](ctx context.Context, what string, page pager.ListPageFunc, add func(T)) error {
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("%T is not what was asked for", object)
		}
		add(typed)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", what, err)
	}
	return nil
}
