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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Reader reads. Every answer is as new as the request.
type Reader struct {
	Client kubernetes.Interface
}

// ManyObjects is from where on a list can be cheaper than single reads.
const ManyObjects = 64

// objectsPerRead is how many objects of a list cost as much as one read: a page of 500 takes the
// manager and the apiserver as long as some 25 reads.
const objectsPerRead = 20

const pageSize = 500

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
	found, complete, err := pick(ctx, names, func(ctx context.Context, o metav1.ListOptions) ([]corev1.PersistentVolume, metav1.ListMeta, error) {
		list, err := r.Client.CoreV1().PersistentVolumes().List(ctx, o)
		if err != nil {
			return nil, metav1.ListMeta{}, fmt.Errorf("listing volumes: %w", err)
		}
		return list.Items, list.ListMeta, nil
	}, func(object *corev1.PersistentVolume) string { return object.Name })
	if complete || err != nil {
		return found, err
	}
	return each(ctx, names, r.Volume)
}

// Claims are those of the named claims that exist, by name.
func (r Reader) Claims(ctx context.Context, names []types.NamespacedName) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	found, complete, err := pick(ctx, names, func(ctx context.Context, o metav1.ListOptions) ([]corev1.PersistentVolumeClaim, metav1.ListMeta, error) {
		list, err := r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return nil, metav1.ListMeta{}, fmt.Errorf("listing claims: %w", err)
		}
		return list.Items, list.ListMeta, nil
	}, func(object *corev1.PersistentVolumeClaim) types.NamespacedName {
		return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	})
	if complete || err != nil {
		return found, err
	}
	return each(ctx, names, func(ctx context.Context, name types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
		return r.Claim(ctx, name.Namespace, name.Name)
	})
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

// pick reads a list page by page and keeps what is wanted of each page, so its memory is that of
// one page and of what is wanted. It is not complete, and stops after the first page at the latest,
// where single reads are cheaper.
func pick[K comparable, T any](ctx context.Context, wanted []K, page func(context.Context, metav1.ListOptions) ([]T, metav1.ListMeta, error), key func(*T) K) (found map[K]*T, complete bool, err error) {
	if len(wanted) <= ManyObjects {
		return nil, false, nil
	}
	missing := make(map[K]bool, len(wanted))
	for _, k := range wanted {
		missing[k] = true
	}
	found = make(map[K]*T, len(wanted))
	options := metav1.ListOptions{Limit: pageSize}
	for {
		items, list, err := page(ctx, options)
		if err != nil {
			return nil, false, err
		}
		if options.Continue == "" && isLong(list, len(items), len(wanted)) {
			return nil, false, nil
		}
		for i := range items {
			if k := key(&items[i]); missing[k] {
				object := items[i] // a pointer into the page would keep all of it
				found[k] = &object
			}
		}
		if list.Continue == "" {
			return found, true, nil
		}
		options.Continue = list.Continue
	}
}

// isLong says that a list, of which the first page has been read, has so many objects that reading
// the wanted ones costs less.
func isLong(list metav1.ListMeta, read, wanted int) bool {
	if list.Continue == "" {
		return false
	}
	return list.RemainingItemCount == nil || int64(read)+*list.RemainingItemCount > int64(wanted)*objectsPerRead
}
