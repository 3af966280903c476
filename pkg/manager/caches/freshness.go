package caches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

const (
	// catchUpPoll is the time between two comparisons of a cache with its list.
	catchUpPoll = 20 * time.Millisecond
	// pageSize takes the apiserver half the time for each object that the usual 500 take; the
	// metadata of so many take 5 MiB.
	pageSize = 5000
	// pageTimeout ends a request on a connection that is dead. A page takes some 100 ms.
	pageTimeout = 10 * time.Second
)

// CaughtUp returns when the caches that writes are decided from are at least as new as this
// call: a standby that was cut off for a while must not act on what it remembers when it
// becomes the leader. Each kind is listed once, all of them at the same time, and then its cache
// waited for. What others create and delete meanwhile does not prolong that.
func (c *Caches) CaughtUp(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	var catchUps []*catchUp
	for _, k := range c.kinds() {
		if !k.resource.Empty() {
			catchUps = append(catchUps, &catchUp{kind: k})
		}
	}
	c.catchUps.Store(&catchUps)
	defer c.catchUps.Store(nil)
	for _, u := range catchUps {
		group.Go(func() error { return u.run(ctx, c.metadata) })
	}
	return group.Wait()
}

// Behind names the caches that Await or CaughtUp waits for; nil for none.
func (c *Caches) Behind() error {
	var behind []string
	for _, k := range c.kinds() {
		if !k.informer.HasSynced() {
			behind = append(behind, k.name+": not all objects have been read")
		}
	}
	if catchUps := c.catchUps.Load(); catchUps != nil {
		for _, u := range *catchUps {
			if state := u.state(); state != "" {
				behind = append(behind, u.name+": "+state)
			}
		}
	}
	if len(behind) == 0 {
		return nil
	}
	return fmt.Errorf("the cache is behind the apiserver (%s)", strings.Join(behind, "; "))
}

// catchUp is the way of one cache to what the apiserver has.
type catchUp struct {
	kind
	listed atomic.Pointer[listing] // nil until the list has been read
	over   atomic.Bool             // the cache has caught up
}

func (u *catchUp) run(ctx context.Context, client metadata.Interface) error {
	before := u.informer.GetStore().LastStoreSyncResourceVersion()
	listed, err := u.list(ctx, client)
	if err != nil {
		return fmt.Errorf("listing %s: %w", u.name, err)
	}
	if ahead, err := isNewer(before, listed.version); ahead || err != nil {
		return errors.Join(fmt.Errorf("the cache of %s has version %s, and the apiserver's list %s: %w", u.name, before, listed.version, errBack), err)
	}
	u.listed.Store(listed)
	err = wait.PollUntilContextCancel(ctx, catchUpPoll, true, func(context.Context) (bool, error) {
		behind, err := listed.isAhead(u.informer.GetStore())
		return !behind, err
	})
	if err != nil {
		return fmt.Errorf("comparing the cache of %s with the apiserver's list: %w", u.name, err)
	}
	u.over.Store(true)
	return nil
}

// errBack is the error for a cache from the time before etcd was restored.
var errBack = errors.New("the apiserver's versions have gone back")

// state returns a text for people, "" when there is nothing to wait for.
func (u *catchUp) state() string {
	listed := u.listed.Load()
	switch {
	case u.over.Load():
		return ""
	case listed == nil:
		return "the apiserver's list is being read"
	}
	missing, extra, err := listed.differences(u.informer.GetStore())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d of %d objects are missing, %d have been deleted", missing, len(listed.objects), extra)
}

// listing is the content of the apiserver for one kind at one moment.
type listing struct {
	version string            // of the list
	newest  string            // of the versions of the objects; "" without objects
	objects map[string]string // resourceVersion by the key in the cache
}

// isAhead reports whether the list has anything that a cache has not. Watch events of one kind arrive in the order
// of their versions, and a store has the version of the latest event that it contains. So a store at the newest
// object's version has every change from before the list; a listed object that it lacks was deleted since.
// Deletions from before the list show as objects that are older than the list and not in it.
//
// The list's own version would take a minute to arrive: it counts the changes of all kinds, which an informer
// receives in bookmarks only.
func (l *listing) isAhead(store cache.Store) (bool, error) {
	if ahead, err := isNewer(l.newest, store.LastStoreSyncResourceVersion()); ahead || err != nil {
		return ahead, err
	}
	deleted, err := l.deletedFrom(store)
	return deleted > 0, err
}

// differences count the objects whose versions the store has not reached, and those that it has
// although they were deleted before the list.
func (l *listing) differences(store cache.Store) (missing, deleted int, err error) {
	reached := store.LastStoreSyncResourceVersion()
	for _, version := range l.objects {
		newer, err := isNewer(version, reached)
		if err != nil {
			return 0, 0, err
		}
		if newer {
			missing++
		}
	}
	deleted, err = l.deletedFrom(store)
	return missing, deleted, err
}

func (l *listing) deletedFrom(store cache.Store) (count int, err error) {
	for _, cached := range store.List() {
		object, err := meta.Accessor(cached)
		if err != nil {
			return 0, err
		}
		if _, listed := l.objects[keyOf(object)]; listed {
			continue
		}
		newer, err := isNewer(object.GetResourceVersion(), l.version)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", keyOf(object), err)
		}
		if !newer {
			count++
		}
	}
	return count, nil
}

// isNewer compares versions of one kind. "" is before all others.
func isNewer(version, than string) (bool, error) {
	if version == "" || than == "" {
		return version != "", nil
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return order > 0, err
}

func keyOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

// list reads names and versions only, page by page. Of 100,000 whole objects the apiserver alone would
// encode for eight seconds, on one processor.
func (k kind) list(ctx context.Context, client metadata.Interface) (*listing, error) {
	l := &listing{objects: map[string]string{}}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page, err := k.page(ctx, client, o)
		if err != nil {
			return nil, err
		}
		l.version = page.ResourceVersion // the same for every page
		return page, nil
	})
	pages.PageSize, pages.PageBufferSize = pageSize, 1 // the next one; more would only take memory
	return l, pages.EachListItem(ctx, metav1.ListOptions{}, l.add)
}

func (k kind) page(ctx context.Context, client metadata.Interface, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	o.FieldSelector = k.selector
	return client.Resource(k.resource).Namespace(k.namespace).List(ctx, o)
}

func (l *listing) add(item runtime.Object) error {
	object, err := meta.Accessor(item)
	if err != nil {
		return err
	}
	version := object.GetResourceVersion()
	l.objects[keyOf(object)] = version
	newer, err := isNewer(version, l.newest)
	if newer {
		l.newest = version
	}
	return err
}

const (
	// currentPoll is the time between two reads of the version that a cache has reached.
	currentPoll = 5 * time.Millisecond
	// currentTime limits the wait of IsCurrent. While many objects change, an event comes each few milliseconds;
	// where none comes, to read some objects one by one takes as long.
	currentTime = 100 * time.Millisecond
)

// IsCurrent waits until the cache of an informer has reached the apiserver's current version, and reports whether
// it has within currentTime. Watch events of one kind arrive in the order of their versions, so the cache gets
// there with the next change of any object of the kind: one request can replace the reads of many objects while
// others change. It returns false if nothing changes in that time, if the version cannot be read, or if the cache
// is ahead of the apiserver, because etcd was restored.
func (c *Caches) IsCurrent(ctx context.Context, informer cache.SharedIndexInformer) bool {
	kinds := c.kinds()
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.informer == informer })]
	before := informer.GetStore().LastStoreSyncResourceVersion()
	page, err := k.page(ctx, c.metadata, metav1.ListOptions{Limit: 1}) // its version counts the changes of all objects
	if err != nil || page.ResourceVersion == "" {
		return false
	}
	if ahead, err := isNewer(before, page.ResourceVersion); ahead || err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, currentTime)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, currentPoll, true, func(context.Context) (bool, error) {
		behind, err := isNewer(page.ResourceVersion, informer.GetStore().LastStoreSyncResourceVersion())
		return !behind, err
	}) == nil
}

// VolumesNow returns the named volumes that exist, as they are now or a moment later. Many are read from the cache if
// it is known to be as new: while many objects change, it nearly always is.
func (c *Caches) VolumesNow(ctx context.Context, live objects.Reader, names []string) (map[string]*corev1.PersistentVolume, error) {
	if c.answers(ctx, c.Volumes, len(names)) {
		return found(names, c.Volume), nil
	}
	return live.Volumes(ctx, names, Count(c.Volumes))
}

// ClaimsNow is VolumesNow for claims.
func (c *Caches) ClaimsNow(ctx context.Context, live objects.Reader, names []types.NamespacedName) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	if c.answers(ctx, c.Claims, len(names)) {
		return found(names, func(n types.NamespacedName) *corev1.PersistentVolumeClaim { return c.ClaimNamed(n.Namespace, n.Name) }), nil
	}
	return live.Claims(ctx, names, Count(c.Claims))
}

// answers reports whether a cache may answer for the apiserver. It asks only where single reads, or a list of all
// objects, would cost more.
func (c *Caches) answers(ctx context.Context, informer cache.SharedIndexInformer, names int) bool {
	return names > objects.ManyObjects && Count(informer) > names && c.IsCurrent(ctx, informer)
}

// Count returns the number of an informer's objects.
func Count(informer cache.SharedIndexInformer) int { return len(informer.GetStore().ListKeys()) }
