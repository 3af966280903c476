package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
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

// every calls a function at intervals until stop, which waits for the last call.
func every(interval time.Duration, call func()) (stop func()) {
	done := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				call()
			}
		}
	})
	return func() {
		close(done)
		calling.Wait()
	}
}

// counts are in a group of their own: the log keys that all our programs share name objects.
func counts(pairs ...any) slog.Attr {
	return slog.Group("count", pairs...) //nolint:sloglint // the group's name; its keys are numbers of this program only
}
