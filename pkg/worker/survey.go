package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

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
