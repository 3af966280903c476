package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

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
func (j job) runBatch(ctx context.Context, batch operations.Batch) (operations.Report, error) {
	j.log.Info("batch started", counts("batch", batch.Number, "operations", len(batch.Operations)))
	start := j.Now()
	report, err := j.carryOut(ctx, batch.Operations)
	report.Batch = batch.Number
	j.log.With("duration", j.Now().Sub(start).String()).Info("batch ended", countStates(report))
	return report, errors.Join(err, writeReport(j.options.terminationLog, report.TerminationMessage()))
}

func (j job) carryOut(ctx context.Context, ops []operations.Operation) (operations.Report, error) {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return operations.RefusedReport(len(ops), fsroot.ResultOf(err)), err
	}
	defer fileSystem.Close()
	return batch.Run(ctx, fileSystem, ops, j.observed()), nil
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
		stop = every(wellknown.CloneProgressInterval, func() { j.writeProgress(progress()) })
	}}), nil
}

func (j job) writeProgress(progress operations.CloneProgress) {
	if line, err := progress.Encode(); err == nil {
		fmt.Fprintf(j.Stdout, "%s\n", line)
	}
}
