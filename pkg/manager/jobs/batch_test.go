package jobs

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestLiveReadsAreForTheBatch: of 2,000 volumes that wait for their cleanup in a cluster of more than 10,000, in
// which nothing else changes, 512 are read, and no list.
func TestLiveReadsAreForTheBatch(t *testing.T) {
	const waiting, batch = 2000, 512
	l := newLoop(t)
	for n := range waiting {
		object := releasedVolume(n)
		add(t, l.gatherer.Caches.Volumes.GetStore(), object)
		if err := l.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
		l.gatherer.Decide(claimNumber(n))
	}
	const inCluster = 20*batch + 1
	for n := range inCluster - waiting {
		add(t, l.gatherer.Caches.Volumes.GetStore(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("foreign-", n)}})
	}
	for n := range inCluster {
		add(t, l.gatherer.Caches.Claims.GetStore(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("foreign-", n)}})
	}
	l.client.ClearActions()
	s := ready(l.observe(fileSystem))
	if _, err := l.apply(t.Context(), s, planFor(s)); err != nil {
		t.Fatal(err)
	}
	reads, lists := map[string]int{}, map[string]int{}
	for _, action := range l.client.Actions() {
		switch action.GetVerb() {
		case "get":
			reads[action.GetResource().Resource]++
		case "list":
			lists[action.GetResource().Resource]++
		}
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims"} {
		if reads[resource] != batch || lists[resource] > 0 {
			t.Errorf("%s: %d reads and %d lists, want %d and none", resource, reads[resource], lists[resource], batch)
		}
	}
	created, err := l.client.BatchV1().Jobs("efs-stunnel").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(created.Items) != 1 {
		t.Fatalf("%d Jobs, %v", len(created.Items), err)
	}
	ops, err := mountjobs.Operations(&created.Items[0], nil)
	if err != nil || len(ops) != batch {
		t.Errorf("the Job has %d operations (%v), want %d", len(ops), err, batch)
	}
}

// TestOperationsKeepTheirOrder: what is due is packed once for each volume.
func TestOperationsKeepTheirOrder(t *testing.T) {
	due := func(volumes ...string) (all []decide.Pending) {
		for _, v := range volumes {
			all = append(all, decide.Pending{Operation: operations.Operation{
				Kind: operations.Cleanup, Owner: operations.Owner{Volume: v, Cluster: "cluster"}, Path: "/team/" + v,
			}})
		}
		return all
	}
	for name, c := range map[string]struct {
		due   []decide.Pending
		batch int
		want  []string
	}{
		"none":             {nil, 2, nil},
		"all":              {due("a", "b"), 2, []string{"a", "b"}},
		"as many as fit":   {due("a", "b", "c"), 2, []string{"a", "b"}},
		"each volume once": {due("a", "a", "b"), 2, []string{"a", "b"}},
		"without an unfit": {due("", "b", "c"), 2, []string{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range mountjobs.Pack(c.due, func(p decide.Pending) operations.Operation { return p.Operation }, c.batch).Batch {
				got = append(got, w.Operation.Volume)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestCleanupIsSentWithTheOwnersInItsWay, whatever a Job carries at most: alone, these would be released for ever.
func TestCleanupIsSentWithTheOwnersInItsWay(t *testing.T) {
	l := newLoop(t)
	l.options.Batch = 1
	object := releasedVolume(0)
	add(t, l.gatherer.Caches.Volumes.GetStore(), object)
	if err := l.client.Tracker().Add(object); err != nil {
		t.Fatal(err)
	}
	_, plan := l.gatherer.Decide(claimNumber(0))
	if len(plan.Pending) != 1 {
		t.Fatalf("got %+v", plan)
	}
	pending := plan.Pending[0]
	pending.Blockers = []operations.Owner{{Volume: "gone", Cluster: pending.Operation.Cluster, Namespace: "team", Claim: "gone", ClaimUID: "gone"}}
	ops, err := l.confirmLive(t.Context(), []decide.Pending{pending})
	if err != nil || len(ops) != 2 {
		t.Fatalf("got %+v, %v", ops, err)
	}
	if got := l.packAll(ops); len(got) != 2 || got[1].Kind != operations.Cleanup {
		t.Errorf("got %+v, want the cleanup after the release", got)
	}
}

// TestJobWithACleanupThatIsCalledOffIsEnded before its program starts, and not later: it may be removing the directory.
func TestJobWithACleanupThatIsCalledOffIsEnded(t *testing.T) {
	started := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: mountjobs.ContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}}
	for name, tt := range map[string]struct {
		policy corev1.PersistentVolumeReclaimPolicy
		pods   []*corev1.Pod
		ended  int
	}{
		"is to be removed":    {corev1.PersistentVolumeReclaimDelete, nil, 0},
		"is to stay":          {corev1.PersistentVolumeReclaimRetain, nil, 1},
		"stays, it is begun":  {corev1.PersistentVolumeReclaimRetain, []*corev1.Pod{started}, 0},
		"stays, no container": {corev1.PersistentVolumeReclaimRetain, []*corev1.Pod{{}}, 1},
	} {
		l := newLoop(t)
		object := releasedVolume(0)
		add(t, l.gatherer.Caches.Volumes.GetStore(), object)
		if err := l.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
		l.gatherer.Decide(claimNumber(0))
		s := ready(l.observe(fileSystem))
		if _, err := l.apply(t.Context(), s, planFor(s)); err != nil {
			t.Fatal(err)
		}
		created, err := l.client.BatchV1().Jobs("efs-stunnel").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(created.Items) != 1 {
			t.Fatalf("%d Jobs, %v", len(created.Items), err)
		}
		job := &created.Items[0]
		job.UID, job.CreationTimestamp = "job", metav1.Now()
		add(t, l.gatherer.Caches.Jobs.GetStore(), job)
		for _, pod := range tt.pods {
			pod.Name, pod.Namespace, pod.OwnerReferences = "pod", job.Namespace, []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
			add(t, l.gatherer.Caches.Pods.GetStore(), pod)
		}
		object = object.DeepCopy()
		object.Spec.PersistentVolumeReclaimPolicy = tt.policy
		add(t, l.gatherer.Caches.Volumes.GetStore(), object)
		if got := len(changesOf[background.End](planFor(ready(l.observe(fileSystem))))); got != tt.ended {
			t.Errorf("a volume that %s: %d Jobs are ended, want %d", name, got, tt.ended)
		}
	}
}
