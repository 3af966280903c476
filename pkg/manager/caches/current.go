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
	// currentPoll is the time between two looks at the version that a cache has reached.
	currentPoll = 5 * time.Millisecond
	// currentTime is how long IsCurrent waits. While many objects change, an event comes each few milliseconds;
	// where none comes, to read some objects one by one takes as long.
	currentTime = 100 * time.Millisecond
)

// IsCurrent says whether the cache of an informer is now at least as new as this call. It is if it has reached
// the version that the apiserver had then, which it has as soon as any object of the kind changes after
// that: the watch events of one kind come in the order of their versions. So one request can replace the
// reads of many objects while others change. If nothing changes, or the version cannot be read, nothing is known.
// A cache that is ahead of the apiserver is from the time before etcd was restored.
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

// Count is how many objects an informer has.
func Count(informer cache.SharedIndexInformer) int { return len(informer.GetStore().ListKeys()) }
