package jobs

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// cleanups is a loop with released volumes that are all due, in a cluster with as many other volumes and claims.
type cleanups struct {
	loop
	t      *testing.T
	number int
}

func newCleanups(t *testing.T, number int) *cleanups {
	t.Helper()
	l := &cleanups{newLoop(t), t, number}
	for n := range number {
		l.both(releasedVolume(n))
		l.gatherer.Decide(claimNumber(n))
		other := releasedVolume(number + n)
		other.Status.Phase = corev1.VolumeBound
		l.both(other)
		add(t, l.gatherer.Caches.Claims.GetStore(), waitingClaim(number+n))
	}
	add(t, l.gatherer.Caches.Claims.GetStore(), waitingClaim(2*number))
	return l
}

// both gives a volume to the apiserver and to the cache.
func (l *cleanups) both(object *corev1.PersistentVolume) {
	l.t.Helper()
	add(l.t, l.gatherer.Caches.Volumes.GetStore(), object)
	if err := l.client.Tracker().Add(object.DeepCopy()); err != nil {
		l.t.Fatal(err)
	}
}

// onVersion has the apiserver at version 100 when the versions of volumes and claims are read, and both caches
// reach others after that.
func (l *cleanups) onVersion(volumes, claims string, then func()) {
	l.lists.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Resource == "persistentvolumes" {
			if then != nil {
				then()
			}
			l.gatherer.Caches.Volumes.GetStore().Bookmark(volumes)
		} else {
			l.gatherer.Caches.Claims.GetStore().Bookmark(claims)
		}
		return true, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}, nil
	})
}

// send syncs once. It returns the volumes of the operations that the new Job has, and counts reads by resource.
func (l *cleanups) send() (sent map[string]bool, reads map[string]int) {
	l.t.Helper()
	l.client.ClearActions()
	s := ready(l.observe(fileSystem))
	if _, err := l.apply(l.t.Context(), s, planFor(s)); err != nil {
		l.t.Fatal(err)
	}
	reads, sent = map[string]int{}, map[string]bool{}
	for _, action := range l.client.Actions() {
		if action.GetVerb() == "get" || action.GetVerb() == "list" {
			reads[action.GetVerb()+" "+action.GetResource().Resource]++
		}
	}
	created, err := l.client.BatchV1().Jobs("efs-stunnel").List(l.t.Context(), metav1.ListOptions{})
	if err != nil || len(created.Items) != 1 {
		l.t.Fatalf("%d Jobs, %v", len(created.Items), err)
	}
	ops, err := mountjobs.Operations(&created.Items[0], nil)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, o := range ops {
		sent[o.Volume] = true
	}
	return sent, reads
}

// TestCurrentCachesReplaceReads of many objects, for each kind by itself.
func TestCurrentCachesReplaceReads(t *testing.T) {
	const many, few = objects.ManyObjects + 1, objects.ManyObjects
	for name, tt := range map[string]struct {
		number          int
		volumes, claims string // what the caches reach after version 100 was read
		want            map[string]int
	}{
		"both are current":           {many, "101", "102", map[string]int{}},
		"volumes are current":        {many, "101", "99", map[string]int{"list persistentvolumeclaims": 1}},
		"claims are current":         {many, "99", "100", map[string]int{"list persistentvolumes": 1}},
		"nothing is known of either": {many, "", "99", map[string]int{"list persistentvolumes": 1, "list persistentvolumeclaims": 1}},
		"few are read one by one":    {few, "101", "102", map[string]int{"get persistentvolumes": few, "get persistentvolumeclaims": few}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newCleanups(t, tt.number)
			l.onVersion(tt.volumes, tt.claims, nil)
			sent, reads := l.send()
			delete(reads, "list jobs") // the test's own
			if fmt.Sprint(reads) != fmt.Sprint(tt.want) {
				t.Errorf("got %v, want %v", reads, tt.want)
			}
			if len(sent) != tt.number {
				t.Errorf("%d cleanups were sent, want %d", len(sent), tt.number)
			}
		})
	}
}

// TestCurrentCachesAreReadAfterTheirVersion: what has changed by then must not be removed. The reclaim policy
// of one volume was edited, another volume is bound again, and the claim of a third exists.
func TestCurrentCachesAreReadAfterTheirVersion(t *testing.T) {
	l := newCleanups(t, objects.ManyObjects+1)
	l.onVersion("101", "101", func() {
		retained, bound, claimed := releasedVolume(0), releasedVolume(1), releasedVolume(2)
		retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		bound.Status.Phase = corev1.VolumeBound
		for _, object := range []*corev1.PersistentVolume{retained, bound} {
			add(t, l.gatherer.Caches.Volumes.GetStore(), object)
		}
		claim := waitingClaim(2)
		claim.Spec.VolumeName = claimed.Name
		add(t, l.gatherer.Caches.Claims.GetStore(), claim)
	})
	sent, _ := l.send()
	if len(sent) != l.number-3 {
		t.Errorf("%d cleanups were sent, want %d", len(sent), l.number-3)
	}
	for n := range 3 {
		if name := volumes.VolumeName(claimNumber(n)); sent[name] {
			t.Errorf("the cleanup of volume %d was sent", n)
		}
	}
}
