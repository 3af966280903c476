package jobs

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestReleasedJobSaysWhetherItsOperationsAreDone: caches forget those of Jobs that have done all.
func TestReleasedJobSaysWhetherItsOperationsAreDone(t *testing.T) {
	for state, unsuccessful := range map[operations.State]bool{operations.Done: false, operations.Failed: true, operations.Blocked: true, operations.Unknown: true} {
		w := stateWith([]mountJob{mounted(1, func(m *mountJob) {
			m.outcome.State, m.outcome.Report.Results = mountjobs.Finished, []operations.Result{{State: operations.Done}, {State: state}}
		})})
		released := releases(planFor(w))
		if len(released) != 1 || released[0].Unsuccessful != unsuccessful {
			t.Errorf("%s: got %+v", state, released)
		}
	}
}

// TestReleaseIsOneWrite: between two, caches would take the Job for one that has done all, and forget its operations.
func TestReleaseIsOneWrite(t *testing.T) {
	l := newLoop(t)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "mount", Namespace: "efs-stunnel", Finalizers: []string{wellknown.FinalizerOutcome, "somebody/else"}}}
	if err := l.client.Tracker().Add(job); err != nil {
		t.Fatal(err)
	}
	if err := l.release(t.Context(), background.Release{Job: job, Unsuccessful: true}); err != nil {
		t.Fatal(err)
	}
	if writes := l.client.Actions(); len(writes) != 1 {
		t.Errorf("got %d writes: %v", len(writes), writes)
	}
	got, err := l.client.BatchV1().Jobs(job.Namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Finalizers) != 1 || got.Annotations[wellknown.AnnotationUnsuccessful] != wellknown.ValueTrue {
		t.Errorf("got finalizers %v and annotations %v", got.Finalizers, got.Annotations)
	}
}

func releases(p plan) []background.Release { return changesOf[background.Release](p) }
