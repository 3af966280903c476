package caches

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

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

// Count returns the number of an informer's objects.
func Count(informer cache.SharedIndexInformer) int { return len(informer.GetStore().ListKeys()) }
