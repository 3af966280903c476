package operations

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Encode writes hundreds of operations into a Job's annotation: common values once, and not what Decode can derive.
func Encode(operations []Operation) ([]byte, error) {
	batch := wireBatch{Operations: make([]wireOperation, len(operations))}
	if len(operations) > 0 {
		batch.Cluster = operations[0].Cluster
		batch.Record = commonRecord(operations)
		batch.NamespaceUIDs = common(operations, func(o Operation) (namespace, uid string) { return o.Namespace, o.NamespaceUID })
		batch.Class = common(operations, func(o Operation) (all, class string) { return "", o.Class })[""]
	}
	for i, operation := range operations {
		wire := wireOperation{plainOperation: plainOperation(operation)}
		if wire.Cluster == batch.Cluster {
			wire.Cluster = ""
		} else if wire.Cluster == "" {
			return nil, fmt.Errorf("operation %d of %d names no cluster", i, len(operations))
		}
		wire.compact(batch)
		batch.Operations[i] = wire
	}
	data, err := marshal(batch)
	if err != nil {
		return nil, fmt.Errorf("encoding %d operations: %w", len(operations), err)
	}
	if len(data) > wellknown.MaxOperationsBytes {
		return nil, fmt.Errorf("%d operations take %d bytes, more than %d", len(operations), len(data), wellknown.MaxOperationsBytes)
	}
	return data, nil
}

// Decode reads what Encode wrote, and no unknown field: an older mountjob must not do half of what a manager wants.
func Decode(data []byte) ([]Operation, error) {
	if len(data) > wellknown.MaxOperationsBytes {
		return nil, fmt.Errorf("operations of %d bytes, more than %d", len(data), wellknown.MaxOperationsBytes)
	}
	var batch wireBatch
	if err := UnmarshalStrictly(data, &batch); err != nil {
		return nil, fmt.Errorf("reading operations: %w", err)
	}
	operations := make([]Operation, len(batch.Operations))
	for i, wire := range batch.Operations {
		if err := wire.expand(batch); err != nil {
			return nil, fmt.Errorf("reading operation %d: %w", i, err)
		}
		operations[i] = Operation(wire.plainOperation)
	}
	return operations, nil
}

type wireBatch struct {
	Cluster string `json:"cluster,omitempty"` // of the operations that name none
	// Record is that of the operations without one, or NoRecord: claims of one class often have the same.
	Record json.RawMessage `json:"record,omitempty"`
	// NamespaceUIDs and Class are those of setups and restores without one: all of a namespace, or all, have the same.
	NamespaceUIDs map[string]string `json:"nsUIDs,omitempty"`
	Class         string            `json:"class,omitempty"`
	Operations    []wireOperation   `json:"operations"`
}

type plainOperation Operation

type wireOperation struct {
	plainOperation
	// Under replaces Path where the directory is named <claim>-<claim uid>: it is the parent.
	Under string `json:"under,omitempty"`
	// NoRecord says that the operation has no record, not even the batch's.
	NoRecord bool `json:"noRecord,omitempty"`
}

// common maps keys to the values that all setups and restores with that key have.
func common(operations []Operation, of func(Operation) (key, value string)) map[string]string {
	values := map[string]string{}
	for _, operation := range operations {
		if !operation.AddsOwner() {
			continue
		}
		key, value := of(operation)
		if before, seen := values[key]; seen && before != value {
			value = ""
		}
		values[key] = value
	}
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	return values
}

// commonRecord is the record that saves most bytes when it is written once; nil if none does.
func commonRecord(operations []Operation) json.RawMessage {
	var best json.RawMessage
	uses := map[string]int{}
	most := 0
	for _, operation := range operations {
		key := string(operation.Record)
		if saved := uses[key] * len(key); saved > most {
			best, most = operation.Record, saved
		}
		uses[key]++
	}
	return best
}

// compact removes what expand can restore.
func (w *wireOperation) compact(batch wireBatch) {
	if batch.Record != nil {
		w.NoRecord = len(w.Record) == 0
		if bytes.Equal(w.Record, batch.Record) {
			w.Record = nil
		}
	}
	if Operation(w.plainOperation).AddsOwner() {
		if batch.NamespaceUIDs[w.Namespace] != "" {
			w.NamespaceUID = ""
		}
		if batch.Class != "" {
			w.Class = ""
		}
	}
	if parent, ok := strings.CutSuffix(w.Path, w.ownName()); ok {
		w.Under, w.Path = cmp.Or(parent, "/"), ""
	}
	if w.Volume == wellknown.VolumePrefix+w.ClaimUID {
		w.Volume = ""
	}
}

func (w *wireOperation) expand(batch wireBatch) error {
	w.Cluster = cmp.Or(w.Cluster, batch.Cluster)
	if w.NoRecord && len(w.Record) > 0 {
		return errors.New("it has both record and noRecord")
	}
	if len(w.Record) == 0 && !w.NoRecord {
		w.Record = batch.Record
	}
	if Operation(w.plainOperation).AddsOwner() {
		w.NamespaceUID = cmp.Or(w.NamespaceUID, batch.NamespaceUIDs[w.Namespace])
		w.Class = cmp.Or(w.Class, batch.Class)
	}
	if w.Under != "" && w.Path != "" {
		return errors.New("it has both path and under")
	}
	if w.Under != "" {
		w.Path = strings.TrimSuffix(w.Under, "/") + w.ownName()
	}
	w.Volume = cmp.Or(w.Volume, wellknown.VolumePrefix+w.ClaimUID)
	return nil
}

// ownName ends the path of a claim that has a directory of its own.
func (w *wireOperation) ownName() string { return "/" + w.Claim + "-" + w.ClaimUID }

func marshal(value any) ([]byte, error) {
	data, err := MarshalLine(value)
	return bytes.TrimSuffix(data, []byte("\n")), err
}

// MarshalLine writes JSON and a newline. It leaves <, > and & as they are: escaped they take six bytes each.
func MarshalLine(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}

// UnmarshalStrictly reads one value of JSON, all fields of which this version must have.
func UnmarshalStrictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the JSON is followed by something else")
	}
	return nil
}

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

// The channel between the leader and the worker of a mount Job. The worker sends its last Report, and once the leader
// has it only the number. The leader answers with the next Batch, or after LongestPoll with no content. The worker
// waits twice as long: when the node of its leader is lost, it ends before the next one leads, who would have to wait.
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
	if err := UnmarshalStrictly(data, &wire); err != nil {
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
