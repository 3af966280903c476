package mountjobs

import (
	"errors"
	"reflect"
	"slices"
	"sort"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Packed is the division of the operations that wait: each is in exactly one of the three.
type Packed struct {
	// Batch is for the next Job.
	Batch []operations.Operation
	// Left is for later Jobs.
	Left []operations.Operation
	// Unfit cannot be sent with any Job.
	Unfit []Unfit
}

// Unfit is an operation that cannot be sent, and why.
type Unfit struct {
	Operation operations.Operation
	Err       error
}

// Pack chooses the operations of the next Job from those that wait: as many as maxCount and the
// annotation allow, at most one for each volume, in their order. A smaller operation never overtakes a
// larger one, so each is sent at some time.
//
// Restores may fail and be repeated in large numbers, so they get the rest of a Job after other operations,
// but always a share.
func Pack(ops []operations.Operation, maxCount int) Packed {
	var packed Packed
	var fit []operations.Operation
	var others, restores []int // indexes of the first operation of each volume
	seen := map[string]bool{}
	errs := checkSendable(ops)
	for i, operation := range ops {
		if err := errs[i]; err != nil {
			packed.Unfit = append(packed.Unfit, Unfit{Operation: operation, Err: err})
			continue
		}
		switch {
		case seen[operation.Volume]:
		case operation.Kind == operations.Restore:
			restores = append(restores, len(fit))
		default:
			others = append(others, len(fit))
		}
		seen[operation.Volume] = true
		fit = append(fit, operation)
	}
	chosen := choose(fit, others, restores, max(maxCount, 1))
	slices.Sort(chosen)
	for i, operation := range fit {
		if _, ok := slices.BinarySearch(chosen, i); ok {
			packed.Batch = append(packed.Batch, operation)
		} else {
			packed.Left = append(packed.Left, operation)
		}
	}
	return packed
}

// restoreShare is the part of a Job, by count and by bytes, that restores have while others wait.
const restoreShare = 8

// choose returns the indexes of the operations of the next Job.
func choose(ops []operations.Operation, others, restores []int, maxCount int) []int {
	fits := func(others, restores []int, maxBytes int) bool {
		var batch []operations.Operation
		for _, i := range slices.Concat(others, restores) {
			batch = append(batch, ops[i])
		}
		data, err := operations.Encode(batch)
		return err == nil && len(data) <= maxBytes
	}
	count, bytes := maxCount, wellknown.MaxOperationsBytes
	if len(restores) > 0 {
		count, bytes = count-count/restoreShare, bytes-bytes/restoreShare
	}
	first := others[:largest(min(len(others), count), 1, func(n int) bool { return fits(others[:n], nil, bytes) })]
	if len(restores) == 0 {
		return slices.Clone(first)
	}
	restores = restores[:largest(min(len(restores), maxCount-len(first)), 1-min(len(first), 1), func(n int) bool {
		return fits(first, restores[:n], wellknown.MaxOperationsBytes)
	})]
	others = others[:largest(min(len(others), maxCount-len(restores)), len(first), func(n int) bool {
		return fits(others[:n], restores, wellknown.MaxOperationsBytes)
	})]
	return slices.Concat(others, restores)
}

// largest returns the largest number up to most that fits. The least one is known to fit.
func largest(most, least int, fits func(int) bool) int {
	least = min(least, most)
	if least == most || fits(most) {
		return most
	}
	return least + sort.Search(most-least, func(i int) bool { return !fits(least + i + 1) })
}

// checkedTogether is how many operations are checked together: one by one takes ten times as long, and nearly
// always all are sendable.
const checkedTogether = 64

// checkSendable returns an error for each operation that cannot be sent.
func checkSendable(ops []operations.Operation) map[int]error {
	errs := map[int]error{}
	for first := 0; first < len(ops); first += checkedTogether {
		together := ops[first:min(first+checkedTogether, len(ops))]
		if sendable(together...) == nil {
			continue
		}
		for i, operation := range together {
			if err := sendable(operation); err != nil {
				errs[first+i] = err
			}
		}
	}
	return errs
}

// sendable checks that mountjob decodes the same operations: text that is not UTF-8, for one, would become
// another path.
func sendable(ops ...operations.Operation) error {
	for _, operation := range ops {
		if operation.Volume == "" || operation.Cluster == "" {
			return errors.New("the operation names no volume or no cluster")
		}
	}
	data, err := operations.Encode(ops)
	if err != nil {
		return err
	}
	arrived, err := operations.Decode(data)
	if err != nil {
		return err
	}
	for i, operation := range ops {
		operation.Record, arrived[i].Record = nil, nil // JSON may drop its spaces
		if !reflect.DeepEqual(operation, arrived[i]) {
			return errors.New("the operation has text that does not survive being sent")
		}
	}
	return nil
}
