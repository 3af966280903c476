package worker

import (
	"context"
	"sync/atomic"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// sweep empties the trash until its time is over; the next sweep continues.
func (j job) sweep(ctx context.Context, fileSystem *fsroot.FileSystem, report *operations.TaskReport) (err error) {
	progress, stop := j.logSweep()
	report.Swept, err = trash.Sweep(ctx, fileSystem, progress)
	stop()
	swept := report.Swept
	j.log.Info("sweep ended", counts("removed", swept.Removed, "volumes", swept.Volumes, "kept", swept.Kept, "unknown", swept.Unknown))
	if swept.Unknown > 0 {
		j.log.Warn("directories stay in the trash: they have no record that this version can read", counts("unknown", swept.Unknown))
	}
	return err
}

// progressEvery is how many removals are counted at once: few, because each can be slow.
const progressEvery = 100

// logSweep logs the progress of a sweep at intervals until stop, also while nothing is removed, so that the log
// shows a server that hangs.
func (j job) logSweep() (options treewalk.Options, stop func()) {
	var swept atomic.Pointer[operations.Swept]
	swept.Store(&operations.Swept{})
	stop = every(wellknown.SweepProgressInterval, func() {
		j.log.Info("sweep in progress", counts("removed", swept.Load().Removed, "volumes", swept.Load().Volumes))
	})
	return treewalk.Options{Progress: func(s operations.Swept) { swept.Store(&s) }, Every: progressEvery}, stop
}
