package claims

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestMarksOfAJobAreWrittenAtOnce while many of its volumes are deleted.
func TestMarksOfAJobAreWrittenAtOnce(t *testing.T) {
	var ops []operations.Operation
	for n := range 20 {
		ops = append(ops, operationOf(t, types.UID(fmt.Sprint("claim-", n))))
	}
	job := jobOf(t, ops...)
	client := fake.NewClientset(job)
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	if err := loop.gatherer.Caches.Jobs.GetStore().Add(job); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var deleting sync.WaitGroup
		for _, o := range ops {
			deleting.Go(func() {
				if err := loop.markUsed(t.Context(), o.Volume, []string{job.Name}); err != nil {
					t.Error(err)
				}
			})
		}
		deleting.Wait()
	})
	patches := 0
	for _, action := range client.Actions() {
		if action.Matches("patch", "jobs") {
			patches++
		}
	}
	stored, err := client.BatchV1().Jobs(job.Namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
	if err != nil || patches != 1 {
		t.Fatalf("%d patches, %v, want one", patches, err)
	}
	for _, o := range ops {
		if stored.Annotations[wellknown.AnnotationUsed(o.Volume)] != "1" {
			t.Errorf("the mark of %s is missing", o.Volume)
		}
	}
}
