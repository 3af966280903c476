package main

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// model returns a porcupine.Model of a state. An operation without a result may have happened: it changes the state
// where it can, and is allowed everywhere, also after all others.
func model[S any](initial S, step func(state S, o Operation) (bool, S)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			now, _ := state.(S)
			o, _ := input.(Operation)
			return step(now, o)
		},
		DescribeOperation: func(input, _ any) string {
			o, _ := input.(Operation)
			return o.String()
		},
	}
}

// registerModel has a file with one value, which reads return and writes replace.
//
//	state  operation        next
//	5      read 5           5
//	5      swap 5 for 7     7
//	5      swap 6 for 7     violation
//	5      write 7          7
func registerModel() porcupine.Model {
	return model(int64(0), func(value int64, o Operation) (bool, int64) {
		legal := o.Kind == write || o.Result != done || o.Read == value
		if o.Kind == read {
			return legal, value
		}
		return legal, o.Wrote
	})
}

// lockModel has a lock with one holder, 0 for none. A client does not get it only while another one has it.
func lockModel() porcupine.Model {
	return model(0, func(holder int, o Operation) (bool, int) {
		isKnown := o.Result == done
		switch {
		case o.Result == busy:
			return holder != 0 && holder != o.Client, holder
		case o.Kind == lock && holder == 0:
			return true, o.Client
		case o.Kind == unlock && holder == o.Client:
			return true, 0
		}
		return !isKnown, holder
	})
}

// name is the state of a name in a directory.
type name struct {
	exists, ever bool
	creator      int
}

// nameModel has a name that one client creates, and one renames. A client may remember for a while that a name exists
// or is missing, so of the losers two are wrong: who finds a name that nobody has created, and who misses the name
// that it has created itself and nobody has taken.
func nameModel() porcupine.Model {
	return model(name{}, func(state name, o Operation) (bool, name) {
		isKnown := o.Result == done
		switch {
		case o.Result == exists:
			return state.ever, state
		case o.Result == missing:
			return !state.exists || state.creator != o.Client, state
		case o.Kind == create && !state.exists:
			return true, name{exists: true, ever: true, creator: o.Client}
		case o.Kind == take && state.exists:
			return true, name{ever: true}
		}
		return !isKnown, state
	})
}

// staleReads returns the reads of a file with another value than close-to-open allows: that of the last write that
// ended before the read began, or of one that the read overlaps. Unlike a register, two reads that overlap a write may
// have its value first and that of the write before later, on another node.
func staleReads(all []Operation) (stale []Operation) {
	writes := map[int64]Operation{0: {Call: -1, Return: -1}}
	for _, o := range all {
		if o.Kind == write {
			writes[o.Wrote] = o
		}
	}
	replaced := replacements(all)
	for _, o := range all {
		if o.Kind != read || o.Result != done {
			continue
		}
		if w, ok := writes[o.Read]; !ok || w.Call > o.Return || replaced(w) < o.Call {
			stale = append(stale, o)
		}
	}
	return stale
}

// replacements returns a function of a write that returns when the first of the later writes had ended. The operations
// are sorted by their calls.
func replacements(all []Operation) func(Operation) int64 {
	var writes []Operation
	for _, o := range all {
		if o.Kind == write {
			writes = append(writes, o)
		}
	}
	ends := make([]int64, len(writes)+1) // the first end of the writes from an index on
	ends[len(writes)] = math.MaxInt64
	for i := len(writes) - 1; i >= 0; i-- {
		ends[i] = min(ends[i+1], writes[i].Return)
	}
	return func(w Operation) int64 { return ends[firstCalledAfter(writes, w.Return)] }
}

func firstCalledAfter(writes []Operation, time int64) int {
	index, _ := slices.BinarySearchFunc(writes, time, func(o Operation, t int64) int {
		if o.Call > t {
			return 1
		}
		return -1
	})
	return index
}
