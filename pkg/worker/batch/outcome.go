package batch

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Outcome is a result, with what the log says about it.
type Outcome struct {
	operations.Result
	Action fsroot.Action
}

// DoneBy returns the outcome of an operation that is done.
func DoneBy(action fsroot.Action, result operations.Result) Outcome {
	result.State = operations.Done
	return Outcome{result, action}
}

// OutcomeOf is that of an operation that ended with an error.
func OutcomeOf(err error) Outcome {
	result := fsroot.ResultOf(err)
	_, refused := fsroot.AsRefusal(err)
	switch {
	case result.State == operations.NotDone:
		return Outcome{result, fsroot.Stopped}
	case refused:
		return Outcome{result, fsroot.Refused}
	}
	return Outcome{result, fsroot.Failed}
}

// ReportTo tells the observer of a file system how an operation has ended.
func (o Outcome) ReportTo(f *fsroot.FileSystem, op operations.Operation, duration time.Duration) {
	if f.OnEnd != nil {
		f.OnEnd(fsroot.Ended{Operation: op, Result: o.Result, Action: o.Action, Duration: duration})
	}
}
