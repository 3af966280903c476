package mountjob

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// sweep empties the trash until its time is over; the next sweep continues.
func (j job) sweep(ctx context.Context) error {
	swept, err := j.emptyTrash(ctx)
	report := operations.SweepReport{Swept: swept, Stopped: directories.IsStop(err)}
	if err != nil {
		report.Error = err.Error()
	}
	j.log.Info("sweep ended", sweptAtEnd(swept))
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
	j.log.Info("sweep begins")
	watch := &sweepWatch{log: j.log}
	defer watch.start(wellknown.SweepProgressInterval)()
	return fileSystem.Sweep(ctx, directories.SweepOptions{Progress: watch.note, Every: progressEvery})
}

// progressEvery is fine enough to move even where each removal is slow.
const progressEvery = 100

// sweepWatch logs a line at intervals, also while nothing is removed, so that the log shows a server
// that hangs.
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

// start writes lines until stop, which waits for the last one.
func (w *sweepWatch) start(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { w.write(every, done) })
	return func() {
		close(done)
		writing.Wait()
	}
}

func (w *sweepWatch) write(every time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			w.mu.Lock()
			swept := w.swept
			w.mu.Unlock()
			w.log.Info("sweep goes on", sweptSoFar(swept))
		}
	}
}
