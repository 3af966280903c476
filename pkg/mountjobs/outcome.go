package mountjobs

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// State is how far a Job came.
type State string

// The states of a Job. Only a Running one keeps the file system from having another.
const (
	// Running: it has not ended, or not begun.
	Running State = "Running"
	// Succeeded: every operation is done.
	Succeeded State = "Succeeded"
	// Finished: it has ended, and the report tells the operations that are done from the others.
	Finished State = "Finished"
	// Lost: it is over, and nobody knows what it did. Every operation runs again.
	Lost State = "Lost"
	// Stuck: it is past its deadline and its pod will not die. Every operation runs again; the
	// lock on the file system keeps what is left of it from doing harm.
	Stuck State = "Stuck"
)

// Outcome is a mount Job read back.
type Outcome struct {
	Name  Name
	State State
	// Node is where it ran, or "".
	Node string
	// Ended is when; zero where nobody knows.
	Ended time.Time
	// Until is when a Running Job must be looked at again, even if nothing happens to it.
	Until time.Time
	// Overdue says that it is Lost or Stuck because of the time alone, so a clock that is wrong can
	// have made it so.
	Overdue bool
	// Operations are those of the Job, nil if they cannot be read.
	Operations []operations.Operation
	// Report has one result for each operation, in the same order. Unknown ones run again.
	Report operations.Report
	// Message is for people: why it is Lost or Stuck, or how it ended.
	Message string
}

// Read says what became of a mount Job. pods may be any; those of the Job are found by their
// owner.
//
//	pod                          Job                 state
//	none                         no condition        Running, after the deadline Lost
//	none                         Complete            Succeeded; but see succeedWithoutReport
//	none                         Failed              Lost
//	alive                        any                 Running, after the deadline Stuck
//	being deleted, past grace    FailureTarget       Stuck
//	ended, with a report         any                 Succeeded or Finished
//	ended, no readable report    any                 Lost; with code 0 as if Complete
//
// The error is ErrNotOurs, and then nothing else is said; or ErrFormat, and then everything but
// the operations and their results is. Before a caller believes Lost, it should have read the
// pod live: a cache can be behind.
func Read(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (Outcome, error) {
	name, err := Identify(job)
	if err == nil && name.Kind != Mount {
		err = fmt.Errorf("reading Job %s: %w: it is no mount Job", job.Name, ErrNotOurs)
	}
	if err != nil {
		return Outcome{}, err
	}
	r := observe(job, pods, now)
	outcome := Outcome{Name: name, Node: r.node, Ended: r.ended, Until: r.until, Overdue: r.overdue, Message: r.why}
	outcome.Operations, err = Operations(job)
	if err != nil && r.phase == exited {
		r.phase, outcome.Message = vanished, words(err.Error()) // a report about what?
	}
	outcome.conclude(r)
	return outcome, err
}

// conclude matches what the run said to the operations.
func (o *Outcome) conclude(r run) {
	o.Report = operations.Report{Results: make([]operations.Result, len(o.Operations))}
	switch r.phase {
	case goesOn:
		o.State = Running
	case hung:
		o.State = Stuck
	case vanished:
		o.State = Lost
	case exited:
		o.read(r)
	}
}

// read prefers the report to the exit code: with code 0 too it has the gids.
func (o *Outcome) read(r run) {
	report, err := operations.DecodeReport([]byte(r.message), len(o.Operations))
	switch {
	case err == nil:
		o.Report = report
		o.State = Finished
		if report.Succeeded() {
			o.State, o.Message = Succeeded, ""
		}
	case r.exitCode == 0:
		o.succeedWithoutReport()
	default:
		o.State = Lost
		o.Message = r.withoutReport()
	}
}

// succeedWithoutReport makes everything done, but for what may have got a gid that the volume
// must have: doing that again tells it.
func (o *Outcome) succeedWithoutReport() {
	o.State = Succeeded
	for i, operation := range o.Operations {
		if operation.Kind == operations.Setup || operation.Kind == operations.Restore {
			o.State = Finished
			continue
		}
		o.Report.Results[i].State = operations.Done
	}
}

// HoldsFileSystem says whether the next Job must wait for this one.
func (o Outcome) HoldsFileSystem() bool { return o.State == Running }

// BlamesNode says whether the next try is better made on another node. Refusals of single
// operations are the same everywhere.
func (o Outcome) BlamesNode() bool {
	if o.Node == "" {
		return false
	}
	return o.State == Lost || o.State == Stuck ||
		slices.ContainsFunc(o.Report.Results, func(result operations.Result) bool {
			return result.Reason == operations.NotNFS || result.Reason == operations.IOError
		})
}
