package mountjobs

import (
	"errors"
	"reflect"
	"sort"

	"gnuthought.com/efs-stunnel/pkg/directories"
)

// Packed is what became of the operations that wait: each is in exactly one of the three.
type Packed struct {
	// Batch is for the next Job.
	Batch []directories.Operation
	// Left waits for a later one.
	Left []directories.Operation
	// Unfit can be in no Job, ever.
	Unfit []Unfit
}

// Unfit is an operation that cannot be sent, and why.
type Unfit struct {
	Operation directories.Operation
	Err       error
}

// Pack chooses the operations of the next Job from those that wait, oldest first: as many as
// maxCount and the annotation allow, at most one for each volume. Order is kept, and none is
// overtaken by a smaller one, so each has its turn.
func Pack(operations []directories.Operation, maxCount int) Packed {
	fit, unfit := separate(operations)
	candidates, places := onePerVolume(fit)
	count := largestFit(candidates[:min(len(candidates), max(maxCount, 1))])
	packed := Packed{Unfit: unfit}
	for i, operation := range fit {
		if at, isCandidate := places[i]; isCandidate && at < count {
			packed.Batch = append(packed.Batch, operation)
		} else {
			packed.Left = append(packed.Left, operation)
		}
	}
	return packed
}

// separate finds what cannot be sent even alone.
func separate(operations []directories.Operation) (fit []directories.Operation, unfit []Unfit) {
	for _, operation := range operations {
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
func sendable(operation directories.Operation) error {
	if operation.Volume == "" || operation.Cluster == "" {
		return errors.New("the operation names no volume or no cluster")
	}
	data, err := directories.EncodeOperations([]directories.Operation{operation})
	if err != nil {
		return err
	}
	arrived, err := directories.DecodeOperations(data)
	if err != nil {
		return err
	}
	operation.Record, arrived[0].Record = nil, nil // the asker's own, whose spaces may go
	if !reflect.DeepEqual(operation, arrived[0]) {
		return errors.New("the operation has text that does not survive being sent")
	}
	return nil
}

// onePerVolume chooses the first operation of each volume. places says where in candidates an
// operation is.
func onePerVolume(operations []directories.Operation) (candidates []directories.Operation, places map[int]int) {
	places = map[int]int{}
	seen := map[string]bool{}
	for i, operation := range operations {
		if seen[operation.Volume] {
			continue
		}
		seen[operation.Volume] = true
		places[i] = len(candidates)
		candidates = append(candidates, operation)
	}
	return candidates, places
}

// largestFit is how many of the operations, from the first on, fit into an annotation. The
// first always does: it has been tried.
func largestFit(operations []directories.Operation) int {
	return sort.Search(len(operations), func(i int) bool {
		_, err := directories.EncodeOperations(operations[:i+1])
		return err != nil
	})
}
