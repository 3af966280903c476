package mountjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// runBatch carries out the operations and writes the report. It writes one after every error, too: the
// manager repeats what is not in it.
func (j job) runBatch(ctx context.Context) error {
	ops, err := readOperations(j.options.operations)
	if err != nil { // no report could say how many there are
		return errors.Join(err, writeReport(j.options.terminationLog, []byte("mountjob: "+err.Error())))
	}
	j.log.Info("batch started", counts("operations", len(ops)))
	start := j.Now()
	report, err := j.carryOut(ctx, ops)
	j.logResults(ops, report, j.Now().Sub(start))
	if err == nil && !report.Succeeded() {
		err = errors.New("not every operation was done")
	}
	return errors.Join(err, writeReport(j.options.terminationLog, report.Encode()))
}

func (j job) carryOut(ctx context.Context, ops []operations.Operation) (operations.Report, error) {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return operations.RefusedReport(len(ops), directories.ResultOf(err)), err
	}
	defer fileSystem.Close()
	return fileSystem.Run(ctx, ops, j.progress()), nil
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

// progress logs the progress of a long batch at intervals.
func (j job) progress() func(done, total int) {
	last := j.Now()
	return func(done, total int) {
		if now := j.Now(); now.Sub(last) >= wellknown.SweepProgressInterval {
			last = now
			j.log.Info("batch in progress", counts("done", done, "operations", total))
		}
		if j.Progress != nil {
			j.Progress(done, total)
		}
	}
}

// logResults logs the operations whose result has a reason, and counts the others.
func (j job) logResults(ops []operations.Operation, report operations.Report, took time.Duration) {
	done := 0
	for i, result := range report.Results {
		log := j.log.With("volume", ops[i].Volume, "reason", string(result.Reason))
		switch {
		case result.State != operations.Done:
			log.Warn("operation is not done", "err", result.Message)
			continue
		case result.Reason != "":
			log.Info("operation is done, with a remark", "err", result.Message)
		default:
			log.Debug("operation is done")
		}
		done++
	}
	j.log.With("duration", took.String()).Info("batch ended", counts("done", done, "operations", len(ops)))
}
