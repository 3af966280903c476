package volumes

import (
	"encoding/json"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// AttemptOf is the number of an operation's attempt, from 1. It is in the record of an operation of any
// kind, so that it survives restarts of the manager and the deletion of older Jobs.
func AttemptOf(operation operations.Operation) int {
	var record struct {
		Try int `json:"try"`
	}
	if json.Unmarshal(operation.Record, &record) != nil {
		return 1
	}
	return max(record.Try, 1)
}

// WithAttempt is the operation with the number of its attempt. The error is about its record.
func WithAttempt(operation operations.Operation, number int) (operations.Operation, error) {
	fields, err := map[string]json.RawMessage{}, error(nil)
	if len(operation.Record) > 0 {
		err = json.Unmarshal(operation.Record, &fields)
	}
	if err != nil {
		return operation, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
	}
	delete(fields, "try")
	if number > 1 {
		fields["try"] = json.RawMessage(fmt.Sprint(number))
	}
	operation.Record = nil
	if len(fields) > 0 {
		operation.Record, err = json.Marshal(fields)
	}
	return operation, err
}
