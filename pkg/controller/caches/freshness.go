package caches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// catchUpPoll is the time between two looks at a cache that is behind.
const catchUpPoll = 20 * time.Millisecond

// catchUpRound is the time between two lists.
const catchUpRound = 2 * time.Second

// CaughtUp returns when the caches that writes are decided from are at least as new as this
// call: a standby that was cut off for a while must not act on what it remembers when it
// becomes the leader. It lists what the apiserver has, once, and waits until every object is
// there in that version or a newer one, and none is there that the apiserver no longer has.
func (c *Caches) CaughtUp(ctx context.Context) error {
	for _, kind := range []struct {
		name     string
		informer cache.SharedIndexInformer
		page     pageFunc
	}{
		{"claims", c.Claims, func(o metav1.ListOptions) (runtime.Object, error) {
			return c.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
		}},
		{"volumes", c.Volumes, func(o metav1.ListOptions) (runtime.Object, error) {
			return c.client.CoreV1().PersistentVolumes().List(ctx, o)
		}},
		{"Jobs", c.Jobs, func(o metav1.ListOptions) (runtime.Object, error) {
			return c.client.BatchV1().Jobs(c.namespace).List(ctx, o)
		}},
		{"targets", c.Table, func(o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = metav1.ObjectNameField + "=" + wellknown.TargetsConfigMap
			return c.client.CoreV1().ConfigMaps(c.namespace).List(ctx, o)
		}},
	} {
		if err := catchUp(ctx, kind.page, kind.informer.GetStore()); err != nil {
			return fmt.Errorf("waiting for the cache of %s: %w", kind.name, err)
		}
	}
	return nil
}

// catchUp lists again after a while: what was deleted between the list and the look at the
// cache never comes.
func catchUp(ctx context.Context, page pageFunc, store cache.Store) error {
	for {
		now, err := listVersions(ctx, page)
		if err != nil {
			return err
		}
		round, cancel := context.WithTimeout(ctx, catchUpRound)
		err = now.await(round, store)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// versions are what the apiserver has.
type versions struct {
	list    string // of the list
	objects map[types.NamespacedName]metav1.Object
}

func listVersions(ctx context.Context, page pageFunc) (versions, error) {
	found := versions{objects: map[types.NamespacedName]metav1.Object{}}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		answer, err := page(o)
		if err != nil {
			return nil, err
		}
		accessor, err := meta.ListAccessor(answer)
		if err != nil {
			return nil, err
		}
		found.list = accessor.GetResourceVersion() // the same for every page
		return answer, ctx.Err()
	}
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		found.objects[nameOf(accessor)] = &metav1.ObjectMeta{UID: accessor.GetUID(), ResourceVersion: accessor.GetResourceVersion()}
		return nil
	})
	return found, err
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (v versions) await(ctx context.Context, store cache.Store) error {
	return backoff.Retry(func() error { return v.missing(store) },
		backoff.WithContext(backoff.NewConstantBackOff(catchUpPoll), ctx))
}

var errBehind = errors.New("it is behind the apiserver")

// missing says whether a cache is behind. What it has beyond the list must be newer than that.
func (v versions) missing(store cache.Store) error {
	current := 0
	for _, cached := range store.List() {
		object, err := meta.Accessor(cached)
		if err != nil {
			return backoff.Permanent(err)
		}
		listed, ok := v.objects[nameOf(object)]
		than := v.list
		if ok {
			current++
			than = listed.GetResourceVersion()
		}
		order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), than)
		if err != nil {
			return backoff.Permanent(err)
		}
		if order < 0 {
			return fmt.Errorf("%s: %w", object.GetName(), errBehind)
		}
	}
	if current < len(v.objects) {
		return fmt.Errorf("%d of %d objects are not there: %w", len(v.objects)-current, len(v.objects), errBehind)
	}
	return nil
}

// pageFunc lists one page.
type pageFunc func(metav1.ListOptions) (runtime.Object, error)
