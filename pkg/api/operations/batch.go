package operations

import (
	"encoding/json"
	"fmt"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// FirstBatch is the number of the batch that a mount Job is created with. Its worker gets later ones.
const FirstBatch = 1

// Batch is a set of operations that a mount Job carries out together.
type Batch struct {
	// Number counts the batches of a Job from FirstBatch.
	Number int
	// Began is when the batch was given to the Job, by the apiserver's clock, in seconds.
	Began      time.Time
	Operations []Operation
}

// MaxBatchBytes is what EncodeBatch writes at most: the operations, and the rest of the JSON.
const MaxBatchBytes = wellknown.MaxOperationsBytes + 256

// The channel between the leader and the worker of a mount Job. The worker sends the whole report of its last
// batch, as Report.Encode writes it, and once the leader has it only the number. The leader answers with the next batch, as EncodeBatch writes it,
// or after LongestPoll with no content. The worker waits twice as long: when the node of its leader is lost, it
// ends before the next leader leads, who would have to wait for it.
const (
	PollPath    = "/v1/batches"
	LongestPoll = 5 * time.Second
)

type wireNumbered struct {
	Number     int             `json:"batch"`
	Began      time.Time       `json:"began"`
	Operations json.RawMessage `json:"operations"`
}

// EncodeBatch writes a batch for the annotation of its Job and for the worker. The error is that of Encode.
func EncodeBatch(b Batch) ([]byte, error) {
	data, err := Encode(b.Operations)
	if err != nil {
		return nil, err
	}
	return marshal(wireNumbered{Number: b.Number, Began: b.Began.UTC().Truncate(time.Second), Operations: data})
}

// DecodeBatch reads what EncodeBatch wrote, as strictly as Decode does.
func DecodeBatch(data []byte) (Batch, error) {
	if len(data) > MaxBatchBytes {
		return Batch{}, fmt.Errorf("a batch of %d bytes, more than %d", len(data), MaxBatchBytes)
	}
	var wire wireNumbered
	if err := unmarshalStrictly(data, &wire); err != nil {
		return Batch{}, fmt.Errorf("reading a batch: %w", err)
	}
	if wire.Number <= FirstBatch || len(wire.Operations) == 0 {
		return Batch{}, fmt.Errorf("batch %d of a worker: want a number above %d, and operations", wire.Number, FirstBatch)
	}
	operations, err := Decode(wire.Operations)
	if err != nil {
		return Batch{}, err
	}
	return Batch{Number: wire.Number, Began: wire.Began, Operations: operations}, nil
}

// ReportedBatch is the number of the batch that a report is about, which has to be known to decode it.
func ReportedBatch(message []byte) int {
	var wire struct {
		Batch int `json:"batch"`
	}
	if json.Unmarshal(message, &wire) != nil {
		return FirstBatch // DecodeReport says why it cannot be read
	}
	return max(wire.Batch, FirstBatch)
}
