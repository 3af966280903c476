//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
)

// TestCurrentCachesHaveWhatWasWritten: directories are removed by what a current cache says. While another
// claim changes all the time, the cache must have each change that was answered before it was asked.
func TestCurrentCachesHaveWhatWasWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	client, err := kubernetes.NewForConfig(f.Config)
	f.check(err)
	lists, err := metadata.NewForConfig(f.Config)
	f.check(err)
	c, err := caches.New(client, lists, wellknown.Namespace)
	f.check(err)
	ctx, stop := context.WithCancel(f.Context())
	var running sync.WaitGroup
	f.Cleanup(running.Wait)
	f.Cleanup(stop)
	running.Go(func() { c.Run(ctx) })
	f.check(c.Await(ctx))

	annotate := func(ctx context.Context, name string, n int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/number":"%d"}}}`, n)
		_, err := f.claims(f.Team).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for _, name := range []string{"changing", "watched"} {
		_, err := f.createForeignClaim(ctx, name)
		f.check(err)
	}
	pace := rate.NewLimiter(100, 1) // or nothing else had the processors
	running.Go(func() {
		for n := 0; pace.Wait(ctx) == nil; n++ {
			if err := annotate(ctx, "changing", n); err != nil && ctx.Err() == nil {
				f.Error(err)
				return
			}
		}
	})
	current := 0
	for n := range 200 {
		f.check(annotate(ctx, "watched", n))
		if !c.IsCurrent(ctx, c.Claims) {
			continue
		}
		current++
		claim := c.ClaimNamed(f.Team, "watched")
		if claim == nil || claim.Annotations["example.com/number"] != fmt.Sprint(n) {
			f.Fatalf("a current cache has %v, without change %d", claim, n)
		}
	}
	if current == 0 {
		f.Error("the cache was never current while claims changed")
	}
}
