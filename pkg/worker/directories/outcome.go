package directories

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// outcome is a result, with what the log says about it.
type outcome struct {
	operations.Result
	action Action
}

func doneBy(action Action, result operations.Result) outcome {
	result.State = operations.Done
	return outcome{result, action}
}

// outcomeOf is that of an operation that ended with an error.
func outcomeOf(err error) outcome {
	result := ResultOf(err)
	_, refused := asRefusal(err)
	switch {
	case result.State == operations.NotDone:
		return outcome{result, Stopped}
	case refused:
		return outcome{result, Refused}
	}
	return outcome{result, Failed}
}

// reportTo tells the observer of a file system how an operation has ended.
func (o outcome) reportTo(f *FileSystem, op operations.Operation, duration time.Duration) {
	if f.onEnd != nil {
		f.onEnd(Ended{Operation: op, Result: o.Result, Action: o.action, Duration: duration})
	}
}
