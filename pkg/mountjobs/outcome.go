package mountjobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// State is the state of a Job's run.
type State string

// The states of a Job. The next Job of a file system waits for a Running one only.
const (
	// Running: it has not started or not ended.
	Running State = "Running"
	// Succeeded: every operation of its newest batch is done.
	Succeeded State = "Succeeded"
	// Finished: it has ended, and the report says which operations are done.
	Finished State = "Finished"
	// Lost: it has ended, and what it did is unknown. Every operation runs again.
	Lost State = "Lost"
	// Stuck: its pod has not ended by its deadline. Every operation runs again; the lock excludes the rest of this run.
	Stuck State = "Stuck"
)

// Status is the result of a Job, without what it reports.
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
	// Unread is a report that cannot be read. It may be about claims of any namespace: it is for the log only.
	Unread string
}

// Outcome is the result of a Job.
type Outcome struct {
	Status
	// Pod is the newest pod, or "".
	Pod string
	// Task is the report of a sweep Job or a survey Job; the zero value unless it has left one.
	Task operations.TaskReport
	// Operations are those of all batches of the Job, nil if they cannot be read.
	Operations []operations.Operation
	// Report has one result for each operation, in the same order. Unknown ones run again.
	Report operations.Report
	// Runs are those of the batches, in the order of their operations.
	Runs []BatchRun
}

// BatchRun is the run of one batch of a Job.
type BatchRun struct {
	Number int
	// First and Count say which of the Outcome's operations are its own.
	First, Count int
	Began        time.Time
	Ended        time.Time // zero if unknown, or while it runs
	Running      bool
}

func (o *Outcome) results(r BatchRun) []operations.Result {
	return o.Report.Results[r.First : r.First+r.Count]
}

// RunOf returns the run that has the nth operation.
func (o *Outcome) RunOf(n int) BatchRun {
	for _, r := range o.Runs {
		if n < r.First+r.Count {
			return r
		}
	}
	return BatchRun{}
}

// Reported is a worker's report of a batch, and when it arrived.
type Reported struct {
	Report operations.Report
	At     time.Time
}

// Use enters what a worker has reported, by batch.
func (o *Outcome) Use(reported map[int]Reported) {
	for i := range o.Runs {
		r := &o.Runs[i]
		if report, ok := reported[r.Number]; ok && len(report.Report.Results) == r.Count {
			copy(o.results(*r), report.Report.Results)
			r.Running, r.Ended = false, report.At
		}
	}
}

// Read returns the result of a Job. pods may contain pods of other Jobs. A sweep Job or a survey Job is Succeeded
// when all that was due is done, and Lost without a report that can be read.
//
//	pod                          Job                 state
//	none                         no condition        Running, after the deadline Lost
//	none                         Complete            Finished, with nothing known; Lost after several batches
//	none                         Failed              Lost
//	alive                        any                 Running, after the deadline Stuck
//	being deleted, past grace    FailureTarget       Stuck
//	ended, with a report         any                 Succeeded or Finished
//	ended, no readable report    any                 Lost; with code 0 as if Complete
//
// The error is ErrNotOurs, without an Outcome; or ErrFormat, with an Outcome that lacks operations and
// results. Before a caller acts on Lost, it should get the pod from the apiserver: a cache can be behind.
func Read(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (Outcome, error) {
	name, err := Identify(job)
	if err != nil {
		return Outcome{}, err
	}
	r := observe(job, pods, now)
	outcome := Outcome{Status: r.Status}
	outcome.Name = name
	if pod := NewestPod(job, pods); pod != nil {
		outcome.Pod = pod.Name
	}
	if !name.Kind.HasOperations() {
		outcome.readTask(r)
		return outcome, nil
	}
	batches, err := Batches(job)
	if err != nil { // a report cannot be matched to operations
		if r.State == Finished {
			outcome.State, outcome.Message = Lost, quote(err.Error())
		}
		return outcome, err
	}
	for _, batch := range batches {
		outcome.add(batch)
	}
	outcome.Report.Results = make([]operations.Result, len(outcome.Operations))
	if r.State == Finished {
		outcome.read(r)
	}
	return outcome, nil
}

func (o *Outcome) readTask(r run) {
	if r.State != Finished {
		return
	}
	report, err := operations.DecodeTaskReport([]byte(r.report))
	if err != nil {
		o.lose(r, err)
		return
	}
	if o.Task, o.Message = report, quote(report.Error); report.Succeeded() {
		o.State = Succeeded
	}
}

func (o *Outcome) add(batch operations.Batch) {
	o.Runs = append(o.Runs, BatchRun{
		Number: batch.Number, First: len(o.Operations), Count: len(batch.Operations),
		Began: batch.Began, Ended: o.Ended, Running: o.State == Running,
	})
	o.Operations = append(o.Operations, batch.Operations...)
}

// read prefers the report to the exit code, because the report has gids. It is of the newest batch that
// the worker had: those before were reported to the leader, and those after were not begun. A batch of which
// everything was used is not among the runs: the worker ended while its leader gave it the next one.
func (o *Outcome) read(r run) {
	message := []byte(r.report)
	reported := operations.ReportedBatch(message)
	i, listed := slices.BinarySearchFunc(o.Runs, reported, func(r BatchRun, number int) int { return cmp.Compare(r.Number, number) })
	if i == len(o.Runs) {
		o.lose(r, fmt.Errorf("it is of batch %d, which the Job never had", reported))
		return
	}
	if !listed {
		if o.stop(o.Runs[i:]); r.exitCode == 0 {
			o.State, o.Message = Succeeded, ""
		}
		return
	}
	report, err := operations.DecodeReport(message, o.Runs[i].Count)
	if err != nil {
		if o.lose(r, err); r.exitCode == 0 && len(o.Runs) == 1 {
			o.State = Finished // in an orderly way, but what was refused is in the report only
		}
		return
	}
	copy(o.results(o.Runs[i]), report.Results)
	o.stop(o.Runs[i+1:])
	if report.Succeeded() && (r.exitCode == 0 || len(o.Runs) == 1) {
		o.State, o.Message = Succeeded, ""
	}
}

// stop marks the operations of runs as not begun.
func (o *Outcome) stop(runs []BatchRun) {
	for _, r := range runs {
		for i := range o.results(r) {
			o.results(r)[i] = operations.Result{State: operations.NotDone, Reason: operations.Stopped, Message: "the worker ended before it had the operation"}
		}
	}
}

// HoldsFileSystem reports whether the next Job of the same kind must wait for this one.
func (s Status) HoldsFileSystem() bool { return s.State == Running }

// BlamesNode reports whether the next try should run on another node. Every node refuses single operations alike.
func (o Outcome) BlamesNode() bool {
	isRefused := slices.ContainsFunc(o.Report.Results, func(result operations.Result) bool {
		return result.Reason == operations.NotNFS || result.Reason == operations.IOError
	})
	return o.Node != "" && (o.State == Lost || o.State == Stuck || isRefused)
}
