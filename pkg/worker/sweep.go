package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/directories"
)

// sweep empties the trash until its time is over, and writes the report; the next sweep continues.
func (j job) sweep(ctx context.Context) error {
	swept, err := j.emptyTrash(ctx)
	report := operations.SweepReport{Swept: swept, Stopped: directories.IsStop(err)}
	if err != nil {
		report.Error = err.Error()
	}
	j.log.Info("sweep ended", counts("removed", swept.Removed, "volumes", swept.Volumes, "kept", swept.Kept, "unknown", swept.Unknown))
	if swept.Unknown > 0 {
		j.log.Warn("directories stay in the trash: they have no record that this version can read", counts("unknown", swept.Unknown))
	}
	data, encoding := report.Encode()
	return errors.Join(err, encoding, writeReport(j.options.terminationLog, data))
}

func (j job) emptyTrash(ctx context.Context) (operations.Swept, error) {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return operations.Swept{}, err
	}
	defer fileSystem.Close()
	j.log.Info("sweep started")
	watch := &sweepWatch{log: j.log}
	defer watch.start(wellknown.SweepProgressInterval)()
	return fileSystem.Sweep(ctx, directories.SweepOptions{Progress: watch.note, Every: progressEvery})
}

// progressEvery is how many removals are counted at once: few, because each can be slow.
const progressEvery = 100

// sweepWatch logs the progress of a sweep at intervals, also while nothing is removed, so that the log
// shows a server that hangs.
type sweepWatch struct {
	log   *slog.Logger
	mu    sync.Mutex
	swept operations.Swept // guarded by mu
}

func (w *sweepWatch) note(swept operations.Swept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swept = swept
}

// start logs a line at intervals until stop, which waits for the last one.
func (w *sweepWatch) start(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var logging sync.WaitGroup
	logging.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				w.log.Info("sweep in progress", w.counts())
			}
		}
	})
	return func() {
		close(done)
		logging.Wait()
	}
}

func (w *sweepWatch) counts() slog.Attr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return counts("removed", w.swept.Removed, "volumes", w.swept.Volumes)
}

// counts are in a group of their own: the log keys that all our programs share name objects.
func counts(pairs ...any) slog.Attr {
	return slog.Group("count", pairs...) //nolint:sloglint // the group's name; its keys are numbers of this program only
}
