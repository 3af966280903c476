package mountjobs

import (
	"errors"
	"reflect"
	"slices"
	"sort"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Packed is what became of the operations that wait: each is in exactly one of the three.
type Packed struct {
	// Batch is for the next Job.
	Batch []operations.Operation
	// Left waits for a later one.
	Left []operations.Operation
	// Unfit can be in no Job, ever.
	Unfit []Unfit
}

// Unfit is an operation that cannot be sent, and why.
type Unfit struct {
	Operation operations.Operation
	Err       error
}

// Pack chooses the operations of the next Job from those that wait: as many as maxCount and the
// annotation allow, at most one for each volume, the first ones first. Order is kept, and none is
// overtaken by a smaller one, so each has its turn.
//
// Restores may be many that come to nothing and are asked for again and again, so they take what the
// others leave, but a share in any case.
func Pack(ops []operations.Operation, maxCount int) Packed {
	fit, unfit := separate(ops)
	candidates := onePerVolume(fit)
	chosen := choose(fit, candidates, max(maxCount, 1))
	packed := Packed{Unfit: unfit}
	for i, operation := range fit {
		if chosen[i] {
			packed.Batch = append(packed.Batch, operation)
		} else {
			packed.Left = append(packed.Left, operation)
		}
	}
	return packed
}

// restoreShare is the part of a Job, by count and by bytes, that restores have while others wait.
const restoreShare = 8

// choose says which of the candidates, which are places in operations, ride in the next Job.
func choose(ops []operations.Operation, candidates []int, maxCount int) map[int]bool {
	var others, restores []int
	for _, i := range candidates {
		if ops[i].Kind == operations.Restore {
			restores = append(restores, i)
		} else {
			others = append(others, i)
		}
	}
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
		return setOf(first)
	}
	restores = restores[:largest(min(len(restores), maxCount-len(first)), 1-min(len(first), 1), func(n int) bool {
		return fits(first, restores[:n], wellknown.MaxOperationsBytes)
	})]
	others = others[:largest(min(len(others), maxCount-len(restores)), len(first), func(n int) bool {
		return fits(others[:n], restores, wellknown.MaxOperationsBytes)
	})]
	return setOf(slices.Concat(others, restores))
}

func setOf(places []int) map[int]bool {
	set := map[int]bool{}
	for _, i := range places {
		set[i] = true
	}
	return set
}

// largest is the largest number up to most that fits. The least one does: it has been tried.
func largest(most, least int, fits func(int) bool) int {
	least = min(least, most)
	if least == most || fits(most) {
		return most
	}
	return least + sort.Search(most-least, func(i int) bool { return !fits(least + i + 1) })
}

// separate finds what cannot be sent even alone.
func separate(ops []operations.Operation) (fit []operations.Operation, unfit []Unfit) {
	for _, operation := range ops {
		if err := sendable(operation); err != nil {
			unfit = append(unfit, Unfit{Operation: operation, Err: err})
			continue
		}
		fit = append(fit, operation)
	}
	return fit, unfit
}

// sendable makes sure that mountjob will read what was meant: text that is not UTF-8, for one,
// would arrive as another path.
func sendable(operation operations.Operation) error {
	if operation.Volume == "" || operation.Cluster == "" {
		return errors.New("the operation names no volume or no cluster")
	}
	data, err := operations.Encode([]operations.Operation{operation})
	if err != nil {
		return err
	}
	arrived, err := operations.Decode(data)
	if err != nil {
		return err
	}
	operation.Record, arrived[0].Record = nil, nil // the manager's own; JSON may drop its spaces
	if !reflect.DeepEqual(operation, arrived[0]) {
		return errors.New("the operation has text that does not survive being sent")
	}
	return nil
}

// onePerVolume gives the places of the first operation of each volume.
func onePerVolume(ops []operations.Operation) (places []int) {
	seen := map[string]bool{}
	for i, operation := range ops {
		if !seen[operation.Volume] {
			seen[operation.Volume] = true
			places = append(places, i)
		}
	}
	return places
}
