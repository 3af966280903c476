package worker

import (
	"context"
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

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
	return clone.Clone(ctx, fileSystem, op, clone.Options{Started: func(progress func() operations.CloneProgress) {
		stop = every(wellknown.CloneProgressInterval, func() { j.writeProgress(progress()) })
	}}), nil
}

func (j job) writeProgress(progress operations.CloneProgress) {
	if line, err := progress.Encode(); err == nil {
		fmt.Fprintf(j.Stdout, "%s\n", line)
	}
}
