package mountjob

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// sweepReport is the termination message of a sweep. pkg/mountjobs reads it; both are tested on
// its testdata/sweep-report.json.
type sweepReport struct {
	operations.Swept
	// Stopped says that its time was over before all that was due was gone.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why some of what was due is left.
	Error string `json:"error,omitempty"`
}

// maxErrorBytes leaves room for the rest of the report, however much JSON has to quote.
const maxErrorBytes = wellknown.MaxTerminationMessageBytes / 8

// sweep empties the trash, as far as the time goes; the next one goes on.
func (j job) sweep(ctx context.Context) error {
	swept, err := j.emptyTrash(ctx)
	report := sweepReport{Swept: swept, Stopped: directories.IsStop(err)}
	if err != nil {
		report.Error = err.Error()[:min(len(err.Error()), maxErrorBytes)]
	}
	j.log.Info("sweep ended", sweptAtEnd(swept))
	if swept.Unknown > 0 {
		j.log.Warn("directories stay in the trash: they have no record that this version can read", counts("unknown", swept.Unknown))
	}
	data, encoding := json.Marshal(report)
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

// sweepWatch writes a line at intervals, also while nothing is removed: a server that hangs
// must be seen to.
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
