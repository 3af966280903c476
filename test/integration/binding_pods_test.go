//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestPodsOfLateClaimsAreScheduled by the real scheduler, which is restarted twice so that it meets claims at every
// stage of their binding, while a throttled controller-manager is stopped and killed and the leader changes. Each claim
// waits for its first consumer and has two pods, as a Deployment with two replicas.
func TestPodsOfLateClaimsAreScheduled(t *testing.T) {
	c, f := startThrottled(t)
	const scheduler = "late"
	stopScheduler, err := c.StartScheduler(scheduler)
	f.check(err)
	restartScheduler := func() {
		stopScheduler()
		stopScheduler, err = c.StartScheduler(scheduler)
		f.check(err)
	}
	t.Cleanup(func() { stopScheduler() })
	for _, name := range f.Nodes {
		node, err := f.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		f.check(err)
		setRoom(f.Env, node, 2000)
	}
	f.addTagAndMountTarget() // in the zone of the other node
	registry := prometheus.NewRegistry()
	first := f.startBindingManager(registry)
	f.waitForBound(f.createClaim("before"))

	count := 60
	if everyCrash {
		count = 600
	}
	binding := f.watchBinding(count + lateClaims)
	atOnce := f.class
	f.class = f.NewClass("waits", nil, waitingForConsumer).Name
	claims := f.createClaims(count)
	f.createConsumers(claims, scheduler)
	f.waitForCount(claims, count/10)
	claims = append(claims, f.stopWhileAsked(c, atOnce)...)
	restartScheduler()
	f.check(c.SignalControllers(syscall.SIGCONT))
	f.waitForCount(claims, count/2)
	c.StopControllers()
	f.check(c.StartControllers())
	f.waitForCount(claims, 3*count/4)
	first.halt()
	c.StopControllers()
	restartScheduler()
	f.startBindingManager(prometheus.NewRegistry())
	f.check(c.StartControllers())
	f.waitForScheduled(2 * count)

	f.waitForCount(claims, len(claims))
	f.expectNothingLost(claims)
	f.expectOnlyHealing()
	f.check(<-binding)
	finished := counted(t, registry, "efs_stunnel_manager_bindings_finished_total")
	if finished == 0 {
		t.Error("the manager has bound no claim")
	}
	t.Logf("the first leader has bound %.0f of %d claims", finished, len(claims))
}

// createConsumers creates two pods for each claim, all at once.
func (f *fixture) createConsumers(claims []*corev1.PersistentVolumeClaim, scheduler string) {
	f.Helper()
	f.Eventually("the namespace has its service account", func(ctx context.Context) error {
		_, err := f.Client.CoreV1().ServiceAccounts(f.Team).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	no := false
	var group sync.WaitGroup
	for i := range 2 * len(claims) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%04d", i)}, Spec: corev1.PodSpec{
			SchedulerName: scheduler, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[i/2].Name},
			}}},
		}}
		group.Go(func() {
			if _, err := f.Client.CoreV1().Pods(f.Team).Create(f.Context(), pod, metav1.CreateOptions{}); err != nil {
				f.Error(err)
			}
		})
	}
	group.Wait()
}

// watchBinding returns an error of the first version of a claim that has a volume's name without the annotation that
// its binding is complete, nil once so many claims are bound. The scheduler refuses pods of such a claim with "pod has
// unbound immediate PersistentVolumeClaims", whatever the mode of its class.
func (f *fixture) watchBinding(count int) <-chan error {
	f.Helper()
	found, err := f.claims(f.Team).List(f.Context(), metav1.ListOptions{})
	f.check(err)
	// The apiserver ends a watch that is slow, on a busy machine. This one goes on where the last one has ended.
	versions, err := watchtools.NewRetryWatcherWithContext(f.Context(), found.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.claims(f.Team).Watch(ctx, o)
		},
	})
	f.check(err)
	outcome := make(chan error, 1)
	go func() {
		defer versions.Stop()
		outcome <- seeBinding(versions, count)
	}()
	return outcome
}

func seeBinding(versions watch.Interface, count int) error {
	bound := map[string]bool{}
	for event := range versions.ResultChan() {
		claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
		if !ok {
			return fmt.Errorf("the watch has an event %s: %v", event.Type, event.Object)
		}
		if claim.Spec.VolumeName != "" && claim.Annotations[wellknown.AnnotationBindCompleted] == "" {
			return fmt.Errorf("claim %s is half bound: %+v", claim.Name, claim)
		}
		if claim.Status.Phase == corev1.ClaimBound && strings.HasPrefix(claim.Name, "claim-") {
			bound[claim.Name] = true
		}
		if len(bound) == count {
			return nil
		}
	}
	return fmt.Errorf("the watch ended with %d of %d claims bound", len(bound), count)
}

func (f *fixture) waitForScheduled(count int) {
	f.Helper()
	f.Eventually(fmt.Sprintf("%d pods have a node", count), func(ctx context.Context) error {
		found, err := f.Client.CoreV1().Pods(f.Team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		scheduled, last := 0, ""
		for _, pod := range found.Items {
			if pod.Spec.NodeName != "" {
				scheduled++
				continue
			}
			last = fmt.Sprintf("%s: %+v", pod.Name, pod.Status.Conditions)
		}
		if scheduled < count {
			return fmt.Errorf("%d have, and not %s", scheduled, last)
		}
		return nil
	})
}

// expectOnlyHealing expects no other refusals of the scheduler than those that are about its own caches, and end when it
// tries the pod again. All pods have a node by then.
func (f *fixture) expectOnlyHealing() {
	f.Helper()
	sentences := regexp.MustCompile(strings.Join([]string{
		// It has observed a pod before its claim.
		`persistentvolumeclaim "claim-[0-9]+" not found`,
		// The claim was written between the scheduler's observation and its write of the selected node: by the selection
		// for the other pod, or by the controller-manager.
		"the object has been modified",
		// The same, noticed before the write.
		"is out of sync",
		// It has observed a bound claim before its volume.
		"bound to non-existent pv",
	}, "|"))
	found := map[string]int{}
	events, err := f.Client.CoreV1().Events(f.Team).List(f.Context(), metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	f.check(err)
	for _, event := range events.Items {
		sentence := sentences.FindString(event.Message)
		if sentence == "" {
			f.Errorf("pod %s: %s", event.InvolvedObject.Name, event.Message)
		}
		found[sentence]++
	}
	f.Logf("pods were not scheduled at once: %v", found)
}
