package claims

import (
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestSmallBatchOfALargeJobCausesFewReads, in a cluster that is too large for lists.
func TestSmallBatchOfALargeJobCausesFewReads(t *testing.T) {
	const large, small, others = 100, 17, 3000
	ops := func(first, count int) (all []operations.Operation) {
		for n := first; n < first+count; n++ {
			o := operationOf(t, types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)))
			o.Claim, o.Path = fmt.Sprint("claim-", n), fmt.Sprint("/team/", n)
			all = append(all, o)
		}
		return all
	}
	var reads atomic.Int64
	client := fake.NewClientset()
	for _, verb := range []string{"get", "list"} {
		client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads.Add(1)
			return false, nil, nil
		})
	}
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	scheme := metadatafake.NewTestScheme()
	lists := metadatafake.NewSimpleMetadataClient(scheme) // knows no version
	c, err := caches.New(client, lists, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	if loop.gatherer, err = observe.New(loop.gatherer.Settings, c, usable); err != nil {
		t.Fatal(err)
	}
	job := withBatch(t, jobOf(t, ops(0, large)...), 2, ops(large, small)...)
	if err := c.Jobs.GetStore().Add(job); err != nil {
		t.Fatal(err)
	}
	for n := range others {
		if err := c.Volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", n)}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("c-", n)}}); err != nil {
			t.Fatal(err)
		}
	}
	operation := ops(large, 1)[0]
	creation := decide.CreateVolume{Attempt: decide.Attempt{Job: job.Name, Batch: 2, BatchSize: small, Operation: operation}}
	if _, ok := loop.snapshotAfter(t.Context(), creation, volumes.VolumeName(types.UID(operation.ClaimUID))); !ok {
		t.Fatal("nothing was read")
	}
	if got := reads.Load(); got != 2*small {
		t.Errorf("%d reads before the first volume of a batch of %d, want one of each claim and volume", got, small)
	}
}
