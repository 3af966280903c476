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

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// EncodeOperations writes a batch, short enough that a Job's annotation holds hundreds: what
// all have in common is written once, and what follows from the rest is left out.
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
		wire.shorten(batch)
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

// DecodeOperations reads what EncodeOperations wrote. A field that it does not know is an
// error: an older mountjob must not do half of what a newer manager asks for.
func Decode(data []byte) ([]Operation, error) {
	if len(data) > wellknown.MaxOperationsBytes {
		return nil, fmt.Errorf("operations of %d bytes, more than %d", len(data), wellknown.MaxOperationsBytes)
	}
	var batch wireBatch
	if err := unmarshalStrictly(data, &batch); err != nil {
		return nil, fmt.Errorf("reading operations: %w", err)
	}
	operations := make([]Operation, len(batch.Operations))
	for i, wire := range batch.Operations {
		if wire.Cluster == "" {
			wire.Cluster = batch.Cluster
		}
		if err := wire.lengthen(batch); err != nil {
			return nil, fmt.Errorf("reading operation %d: %w", i, err)
		}
		operations[i] = Operation(wire.plainOperation)
	}
	return operations, nil
}

type wireBatch struct {
	Cluster string `json:"cluster,omitempty"` // of the operations that name none
	// Record is that of all operations that have none of their own and do not say that they have
	// no record at all: a burst of claims of one class has the same.
	Record json.RawMessage `json:"record,omitempty"`
	// NamespaceUIDs and Class are those of the setups and restores, each only where it is the same
	// in all of a namespace, or in all.
	NamespaceUIDs map[string]string `json:"nsUIDs,omitempty"`
	Class         string            `json:"class,omitempty"`
	Operations    []wireOperation   `json:"operations"`
}

type plainOperation Operation

type wireOperation struct {
	plainOperation
	// Under, in place of Path, is the folder of a directory that is named <claim>-<claim uid>.
	Under string `json:"under,omitempty"`
	// NoRecord says that there is none, not even the common one.
	NoRecord bool `json:"noRecord,omitempty"`
}

// common are the values that all setups and restores with the same key have.
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

// AddsOwner says that an operation makes its volume an owner.
func (o Operation) AddsOwner() bool { return o.Kind == Setup || o.Kind == Restore }

// commonRecord is the one that saves most when it is written once; nil if none does.
func commonRecord(operations []Operation) json.RawMessage {
	var best json.RawMessage
	saved := map[string]int{}
	most := 0
	for _, operation := range operations {
		key := string(operation.Record)
		if _, seen := saved[key]; seen {
			saved[key] += len(key)
		} else {
			saved[key] = 0
		}
		if saved[key] > most {
			best, most = operation.Record, saved[key]
		}
	}
	return best
}

func (w *wireOperation) shorten(batch wireBatch) {
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
	if under, ok := strings.CutSuffix(w.Path, w.ownName()); ok {
		w.Under, w.Path = under, ""
		if under == "" {
			w.Under = "/"
		}
	}
	if w.Volume == wellknown.VolumePrefix+w.ClaimUID {
		w.Volume = ""
	}
}

func (w *wireOperation) lengthen(batch wireBatch) error {
	if w.NoRecord && len(w.Record) > 0 {
		return errors.New("it has a record and says that it has none")
	}
	if len(w.Record) == 0 && !w.NoRecord {
		w.Record = batch.Record
	}
	if Operation(w.plainOperation).AddsOwner() {
		w.NamespaceUID = cmp.Or(w.NamespaceUID, batch.NamespaceUIDs[w.Namespace])
		w.Class = cmp.Or(w.Class, batch.Class)
	}
	w.NoRecord = false
	if w.Under != "" && w.Path != "" {
		return errors.New("it has both path and under")
	}
	if w.Under != "" {
		w.Path = strings.TrimSuffix(w.Under, "/") + w.ownName()
		w.Under = ""
	}
	if w.Volume == "" {
		w.Volume = wellknown.VolumePrefix + w.ClaimUID
	}
	return nil
}

// ownName ends the path of a claim that shares its directory with nobody.
func (w *wireOperation) ownName() string { return "/" + w.Claim + "-" + w.ClaimUID }

// marshal leaves <, > and & as they are: nothing here is HTML, and every byte counts.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

func unmarshalStrictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}
