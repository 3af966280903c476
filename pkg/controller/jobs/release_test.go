package jobs

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
)

// TestReleasedJobSaysWhetherItsOperationsAreDone: caches forget those of Jobs that have done all.
func TestReleasedJobSaysWhetherItsOperationsAreDone(t *testing.T) {
	for state, unsuccessful := range map[operations.State]bool{operations.Done: false, operations.Failed: true, operations.Blocked: true, operations.Unknown: true} {
		w := stateWith([]mountJob{mounted(1, func(m *mountJob) {
			m.outcome.State, m.outcome.Report.Results = mountjobs.Finished, []operations.Result{{State: operations.Done}, {State: state}}
		})})
		released := changesOf[releaseJob](decide(w))
		if len(released) != 1 || released[0].unsuccessful != unsuccessful {
			t.Errorf("%s: got %+v", state, released)
		}
	}
}
