package volumes

import (
	"encoding/json"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// attempt is the part of a record that every kind of operation may have.
type attempt struct {
	Number int `json:"try,omitempty"` // 0 is the first
}

// AttemptOf is how many times an operation was tried, this time included. It travels in the
// operation, so that it outlives every process and every older Job.
func AttemptOf(operation operations.Operation) int {
	var a attempt
	if json.Unmarshal(operation.Record, &a) != nil || a.Number < 1 {
		return 1
	}
	return a.Number
}

// WithAttempt is the operation, to be tried for the nth time. The error is about its record.
func WithAttempt(operation operations.Operation, number int) (operations.Operation, error) {
	fields := map[string]json.RawMessage{}
	if len(operation.Record) > 0 {
		if err := json.Unmarshal(operation.Record, &fields); err != nil {
			return operation, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
		}
	}
	delete(fields, "try")
	if number > 1 {
		fields["try"] = json.RawMessage(fmt.Sprint(number))
	}
	operation.Record = nil
	if len(fields) == 0 {
		return operation, nil
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return operation, fmt.Errorf("writing the record of volume %s: %w", operation.Volume, err)
	}
	operation.Record = data
	return operation, nil
}
