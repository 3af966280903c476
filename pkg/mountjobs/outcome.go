package mountjobs

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// State is the state of a Job's run.
type State string

// The states of a Job. The next Job of a file system waits for a Running one only.
const (
	// Running: it has not started or not ended.
	Running State = "Running"
	// Succeeded: every operation is done.
	Succeeded State = "Succeeded"
	// Finished: it has ended, and the report says which operations are done.
	Finished State = "Finished"
	// Lost: it has ended, and what it did is unknown. Every operation runs again.
	Lost State = "Lost"
	// Stuck: it is past its deadline and its pod does not end. Every operation runs again; the
	// lock on the file system excludes the rest of this run.
	Stuck State = "Stuck"
)

// Status is the result of a Job of either kind, without its operations.
type Status struct {
	Name  Name
	State State
	// Node is where it ran, or "".
	Node string
	// Ended is when it ended; zero if unknown.
	Ended time.Time
	// Until is when a Running Job must be read again, even if nothing happens to it.
	Until time.Time
	// Overdue says that it is Lost or Stuck because of the time alone, which a wrong clock can cause.
	Overdue bool
	// Message is for users: why it is Lost or Stuck, or how it ended.
	Message string
}

// Outcome is the result of a mount Job.
type Outcome struct {
	Status
	// Operations are those of the Job, nil if they cannot be read.
	Operations []operations.Operation
	// Report has one result for each operation, in the same order. Unknown ones run again.
	Report operations.Report
}

// Read returns the result of a mount Job. pods may contain pods of other Jobs.
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
// The error is ErrNotOurs, without an Outcome; or ErrFormat, with an Outcome that lacks operations and
// results. Before a caller acts on Lost, it should get the pod from the apiserver: a cache can be behind.
func Read(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (Outcome, error) {
	r, err := readRun(Mount, job, pods, now)
	if err != nil {
		return Outcome{}, err
	}
	outcome := Outcome{Status: r.Status}
	outcome.Operations, err = Operations(job)
	outcome.Report.Results = make([]operations.Result, len(outcome.Operations))
	if r.State != Finished {
		return outcome, err
	}
	if err != nil {
		outcome.State, outcome.Message = Lost, quote(err.Error()) // a report cannot be matched to operations
		return outcome, err
	}
	outcome.read(r)
	return outcome, nil
}

// readRun returns the run of a Job, which must be of the kind. The error is ErrNotOurs.
func readRun(kind Kind, job *batchv1.Job, pods []*corev1.Pod, now time.Time) (run, error) {
	name, err := Identify(job)
	if err == nil && name.Kind != kind {
		err = fmt.Errorf("reading Job %s: %w: it is of another kind", job.Name, ErrNotOurs)
	}
	if err != nil {
		return run{}, err
	}
	r := observe(job, pods, now)
	r.Name = name
	return r, nil
}

// read prefers the report to the exit code, because the report has gids.
func (o *Outcome) read(r run) {
	report, err := operations.DecodeReport([]byte(r.report), len(o.Operations))
	switch {
	case err == nil && report.Succeeded():
		o.State, o.Report, o.Message = Succeeded, report, ""
	case err == nil:
		o.Report = report
	case r.exitCode == 0:
		o.succeedWithoutReport()
	default:
		o.State, o.Message = Lost, r.withoutReport()
	}
}

// succeedWithoutReport marks operations as done, except those that may have allocated a gid, which the
// volume needs: those run again and report it.
func (o *Outcome) succeedWithoutReport() {
	o.State = Succeeded
	for i, operation := range o.Operations {
		if operation.AddsOwner() {
			o.State = Finished
			continue
		}
		o.Report.Results[i].State = operations.Done
	}
}

// HoldsFileSystem reports whether the next Job of the kind must wait for this one. Mount Jobs and
// sweeps never wait for each other.
func (s Status) HoldsFileSystem() bool { return s.State == Running }

// BlamesNode reports whether the next try should run on another node. Refusals of single operations are the
// same on every node.
func (o Outcome) BlamesNode() bool {
	if o.Node == "" {
		return false
	}
	return o.State == Lost || o.State == Stuck ||
		slices.ContainsFunc(o.Report.Results, func(result operations.Result) bool {
			return result.Reason == operations.NotNFS || result.Reason == operations.IOError
		})
}
