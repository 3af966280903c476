package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// never is the time at which an operation returns that has no result: it happened at any time, or will.
const never = math.MaxInt64

// Operation is a call with its return.
type Operation struct {
	Client       int
	Kind         Kind
	File         string
	Wrote, Read  int64
	Result       string // "" if it is not known whether it happened
	Failure      string // why it failed
	Call, Return int64
}

func (o Operation) String() string {
	return fmt.Sprintf("client %d %s %s wrote %x read %x %q [%d, %d]", o.Client, o.Kind, o.File, o.Wrote, o.Read, o.Result+o.Failure, o.Call, o.Return)
}

// parse reads the events of a history, and returns its operations in the order of their calls.
func parse(in io.Reader) ([]Operation, error) {
	type name struct{ client, op int }
	indexes := map[name]int{}
	ended := map[int]bool{} // clients
	var all []Operation
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading line %d of the history: %w", number, err)
		}
		id := name{e.Client, e.Op}
		switch e.Phase {
		case called:
			indexes[id] = len(all)
			all = append(all, Operation{Client: e.Client, Kind: e.Kind, File: e.File, Wrote: e.Value, Call: e.Time, Return: never})
		case returned:
			index, ok := indexes[id]
			if !ok {
				return nil, fmt.Errorf("line %d of the history returns from a call that it does not have", number)
			}
			all[index].finish(e)
		case gone:
			ended[e.Client] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	hang(all, ended)
	return append(all, deaths(all)...), nil
}

// finish adds a return. An operation that failed may have happened, also later.
func (o *Operation) finish(e Event) {
	failure, isFailure := strings.CutPrefix(e.Result, "failed: ")
	switch {
	case isFailure:
		o.Failure = failure
	case !canReturn(o.Kind, e.Result):
		o.Failure = "it returned " + e.Result // a file that was there is missing
	default:
		o.Read, o.Result, o.Return = e.Value, e.Result, e.Time
	}
}

// canReturn reports whether an operation can have a result without a failure.
func canReturn(kind Kind, result string) bool {
	switch result {
	case busy:
		return kind == lock
	case exists:
		return kind == create
	case missing:
		return kind == take
	}
	return result == done
}

// hang adds a failure to operations that had not returned when the history ended, and whose clients lived.
func hang(all []Operation, ended map[int]bool) {
	for i, o := range all {
		if o.Result == "" && o.Failure == "" && !ended[o.Client] {
			all[i].Failure = "it did not return"
		}
	}
}

// deaths returns an unlock without a result for each client that did not unlock what it locked, or may have. The
// kernel unlocks for a process that dies, and the server for a node that does.
func deaths(all []Operation) (unlocks []Operation) {
	type holder struct {
		client int
		file   string
	}
	last := map[holder]Operation{}
	for _, o := range all {
		if o.Kind == unlock || o.Kind == lock && o.Result != busy {
			last[holder{o.Client, o.File}] = o
		}
	}
	for _, o := range last {
		if o.Kind == lock {
			unlocks = append(unlocks, Operation{Client: o.Client, Kind: unlock, File: o.File, Call: o.Call, Return: never})
		}
	}
	return unlocks
}

// byObject returns operations by what they are done to: the lock of a file is one thing, its content another.
func byObject(all []Operation) map[string][]Operation {
	objects := map[string][]Operation{}
	for _, o := range all {
		object := o.File
		if o.Kind == lock || o.Kind == unlock {
			object += " (lock)"
		}
		objects[object] = append(objects[object], o)
	}
	for _, operations := range objects {
		slices.SortFunc(operations, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	}
	return objects
}

// forPorcupine returns operations as the checker takes them.
func forPorcupine(all []Operation) []porcupine.Operation {
	converted := make([]porcupine.Operation, 0, len(all))
	for _, o := range all {
		converted = append(converted, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Call, Return: o.Return})
	}
	return converted
}
