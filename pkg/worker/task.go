package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

// task does the work of a sweep or a survey, and writes its report, whatever the work came to.
func (j job) task(ctx context.Context, work func(context.Context, *fsroot.FileSystem, *operations.TaskReport) error) error {
	var report operations.TaskReport
	fileSystem, err := j.open(ctx)
	if err == nil {
		j.log.Info("task started", "task", j.options.command)
		err = work(ctx, fileSystem, &report)
		fileSystem.Close()
	}
	if report.Stopped = report.Stopped || fsroot.IsStop(err); err != nil {
		report.Error = err.Error()
	}
	data, encoding := report.Encode()
	return errors.Join(err, encoding, writeReport(j.options.terminationLog, data))
}

// withoutReport writes the error as the termination message, in place of a report that nothing can be said in.
func (j job) withoutReport(err error) error {
	return errors.Join(err, writeReport(j.options.terminationLog, []byte("mountjob: "+err.Error())))
}

// every calls a function at intervals until stop, which waits for the last call, also after the end of ctx.
func every(ctx context.Context, interval time.Duration, call func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var calling sync.WaitGroup
	calling.Go(func() {
		for loop.Pause(ctx, interval) {
			call()
		}
	})
	return func() {
		cancel()
		calling.Wait()
	}
}

// counts are in a group of their own: the log keys that all our programs share name objects.
func counts(pairs ...any) slog.Attr {
	return slog.Group("count", pairs...) //nolint:sloglint // the group's name; its keys are numbers of this program only
}

// sweep empties the trash until its time is over; the next sweep continues.
func (j job) sweep(ctx context.Context, fileSystem *fsroot.FileSystem, report *operations.TaskReport) (err error) {
	progress, stop := j.logSweep(ctx)
	report.Swept, err = trash.Sweep(ctx, fileSystem, progress)
	stop()
	swept := report.Swept
	j.log.Info("sweep ended", counts("removed", swept.Removed, "volumes", swept.Volumes, "kept", swept.Kept, "unknown", swept.Unknown))
	if swept.Unknown > 0 {
		j.log.Warn("directories stay in the trash: they have no record that this version can read", counts("unknown", swept.Unknown))
	}
	return err
}

// logSweep logs a sweep's progress until stop, also while nothing is removed: so the log shows a server that hangs.
func (j job) logSweep(ctx context.Context) (options treewalk.Options, stop func()) {
	var swept atomic.Pointer[operations.Swept]
	swept.Store(&operations.Swept{})
	stop = every(ctx, wellknown.SweepProgressInterval, func() {
		j.log.Info("sweep in progress", counts("removed", swept.Load().Removed, "volumes", swept.Load().Volumes))
	})
	return treewalk.Options{Progress: func(s operations.Swept) { swept.Store(&s) }}, stop
}

const (
	// surveyMemory is where the garbage collector begins to work harder, below the limit of the container.
	surveyMemory = 48 << 20
	// maxSurveyOutput is less than kubelet keeps of a container's log, which the manager reads.
	maxSurveyOutput = 4 << 20
)

// errFullLog ends a survey whose log is long enough; the next one continues.
var errFullLog = errors.New("the log is full")

// survey writes a line for each volume, until all are counted, its log is full or its time is over.
func (j job) survey(ctx context.Context, fileSystem *fsroot.FileSystem, report *operations.TaskReport) error {
	debug.SetMemoryLimit(surveyMemory)
	written := 0
	err := usage.Survey(ctx, fileSystem, usage.Options{
		After: j.options.after,
		// Of a Job that ends in time at least the first volume is found, so that the next one continues after it.
		VolumeTime: j.options.timeLimit() / 2,
		Found: func(usage operations.Usage) error {
			line, err := usage.Encode()
			if err != nil {
				return err
			}
			n, err := fmt.Fprintf(j.Stdout, "%s\n", line)
			if err != nil {
				return fmt.Errorf("writing what %s uses: %w", usage.Path, err)
			}
			report.Counted++
			if written += n; written >= maxSurveyOutput {
				return errFullLog
			}
			return nil
		},
	})
	j.log.Info("survey ended", counts("volumes", report.Counted))
	if errors.Is(err, errFullLog) { // it ends as planned
		report.Stopped, err = true, nil
	}
	return err
}

// answerRequest answers a request of an administrator, as lines on the standard output.
func (j job) answerRequest(ctx context.Context) error {
	answer := requests.NewWriter(j.Stdout)
	end := requests.End{}
	err := j.answer(ctx, answer, &end)
	if err != nil {
		end.Stopped, end.Error = fsroot.IsStop(err), operations.Truncate(fsroot.ResultOf(err).Message, fsroot.MaxProblemBytes)
		err = errors.Join(err, writeReport(j.options.terminationLog, []byte("mountjob: "+end.Error)))
	}
	return errors.Join(err, answer.End(end))
}

func (j job) answer(ctx context.Context, answer *requests.Writer, end *requests.End) error {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return err
	}
	defer fileSystem.Close()
	switch request := j.options.request; request.Do {
	case requests.ListTrash:
		return trash.List(ctx, fileSystem, answer.Trashed)
	case requests.EmptyTrash:
		progress, stop := j.logSweep(ctx)
		defer stop()
		swept, err := trash.Empty(ctx, fileSystem, *request.Selection, progress)
		end.Swept = &swept
		return err
	case requests.ListOwners:
		if request.Lost != nil {
			if err := batch.CheckGone(ctx, fileSystem, *request.Lost, nil); err != nil {
				return err
			}
		}
		return ledger.ListOwners(ctx, fileSystem, answer.Owned)
	case requests.ReleaseCluster:
		return batch.ReleaseCluster(ctx, fileSystem, *request.Release, j.observed(), answer.Owned)
	case requests.ListDirectories:
		return errors.Join(
			ledger.ListOwners(ctx, fileSystem, answer.Owned),
			fileSystem.ListDirectories(ctx, *request.Directories, answer.Directory),
		)
	case requests.AdoptVolumes:
		return batch.AdoptVolumes(ctx, fileSystem, *request.Adoption, j.observed(), answer.Adopted)
	default:
		return fmt.Errorf("there is no request %q", request.Do) // parseOptions has refused it
	}
}

// run carries out the operations of the Job, and then those that its leader has more, batch by batch. The
// leader gets the whole report of each, and the termination message has as much of the newest as fits. It is
// written first, and after every error, too: the manager repeats what is in neither.
func (j job) run(ctx context.Context) error {
	ops, err := readOperations(j.options.operations)
	if err != nil { // no report could say how many there are
		return j.withoutReport(err)
	}
	settled := true
	for batch, more := (operations.Batch{Number: operations.FirstBatch, Operations: ops}), true; more; {
		report, err := j.runBatch(ctx, batch)
		if err != nil {
			return err
		}
		settled = settled && report.Settled()
		if batch, more = j.nextBatch(ctx, report); more {
			// Without this, a worker that dies in the batch would seem never to have begun it.
			unknown := operations.Report{Results: make([]operations.Result, len(batch.Operations)), Batch: batch.Number}
			if err := writeReport(j.options.terminationLog, unknown.TerminationMessage()); err != nil {
				return err
			}
		}
	}
	if !settled { // what was refused is in the report, and the Job has done its work
		return errors.New("not every operation was tried to the end")
	}
	return nil
}

// runBatch returns an error if no more can be done: the batch was not begun, or its report not written.
func (j job) runBatch(ctx context.Context, wanted operations.Batch) (operations.Report, error) {
	j.log.Info("batch started", counts("batch", wanted.Number, "operations", len(wanted.Operations)))
	start, received := j.Now(), time.Now()
	var report operations.Report
	fileSystem, err := j.open(ctx)
	if err == nil {
		options := j.observed()
		options.Received = received
		report = batch.Run(ctx, fileSystem, wanted.Operations, options)
		fileSystem.Close()
	} else {
		report = operations.RefusedReport(len(wanted.Operations), fsroot.ResultOf(err))
	}
	report.Batch = wanted.Number
	j.log.With("duration", j.Now().Sub(start).String()).Info("batch ended", countStates(report))
	return report, errors.Join(err, writeReport(j.options.terminationLog, report.TerminationMessage()))
}

// readOperations reads no more than a Job can have.
func readOperations(path string) ([]operations.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading operations: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, wellknown.MaxOperationsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading operations: %w", err)
	}
	return operations.Decode(data)
}

// observed are options with which each operation that has ended is logged.
func (j job) observed() batch.Options {
	done := 0
	return batch.Options{Ended: func(op operations.Operation, o batch.Outcome, took time.Duration) {
		j.logEnded(op, o, took)
		if done++; j.Progress != nil {
			j.Progress(done)
		}
	}}
}

func (j job) logEnded(op operations.Operation, ended batch.Outcome, took time.Duration) {
	log := j.log.With(
		"action", string(ended.Action),
		"path", op.Path,
		"volume", op.Volume,
		"claim", op.Namespace+"/"+op.Claim,
		"duration", took.Round(time.Millisecond).String(),
	)
	if ended.Reason != "" {
		log = log.With("reason", string(ended.Reason), "err", ended.Message)
	}
	if ended.State == operations.Done {
		log.Info("operation is done")
	} else {
		log.Warn("operation is not done")
	}
}

func countStates(report operations.Report) slog.Attr {
	count := map[operations.State]int{}
	for _, result := range report.Results {
		count[result.State]++
	}
	return counts("operations", len(report.Results), "done", count[operations.Done], "blocked", count[operations.Blocked],
		"failed", count[operations.Failed], "notDone", count[operations.NotDone])
}

// clone copies one volume until its time is over, and writes the report of a batch; the next clone goes on.
// Lines on the standard output say how far it is.
func (j job) clone(ctx context.Context) error {
	ops, err := readOperations(j.options.operations)
	if err == nil && len(ops) != 1 {
		err = fmt.Errorf("a clone has one operation, not %d", len(ops))
	}
	if err != nil {
		return j.withoutReport(err)
	}
	j.log.Info("clone started")
	result, err := j.copyVolume(ctx, ops[0])
	report := operations.Report{Results: []operations.Result{result}, Batch: operations.FirstBatch}
	if err == nil && !report.Settled() {
		err = errors.New("the copy did not come to its end")
	}
	return errors.Join(err, writeReport(j.options.terminationLog, report.TerminationMessage()))
}

func (j job) copyVolume(ctx context.Context, op operations.Operation) (operations.Result, error) {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return operations.RefusedReport(1, fsroot.ResultOf(err)).Results[0], err
	}
	defer fileSystem.Close()
	stop := func() {}
	defer func() { stop() }()
	return clone.Clone(ctx, fileSystem, op, clone.Options{Ended: j.logEnded, Started: func(progress func() operations.CloneProgress) {
		stop = every(ctx, wellknown.CloneProgressInterval, func() { j.writeProgress(progress()) })
	}}), nil
}

func (j job) writeProgress(progress operations.CloneProgress) {
	if line, err := progress.Encode(); err == nil {
		fmt.Fprintf(j.Stdout, "%s\n", line)
	}
}
