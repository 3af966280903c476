package mountjobs

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Batches returns the batches of a mount Job: the first, and those that its worker was given and from which something
// may follow. The error is ErrFormat; it comes with the batches that can be read. Other readers have the same
// operations: nobody may change them.
//
// The operations of the first one are those of the pod's annotation, which mountjob reads, and which is
// immutable. If the Job's own annotation is different, it was edited, and says something that was not done.
func Batches(job *batchv1.Job) ([]operations.Batch, error) {
	var batches []operations.Batch
	first, err := firstOperations(job)
	errs := []error{err}
	if err == nil {
		batches = append(batches, operations.Batch{Number: operations.FirstBatch, Began: job.CreationTimestamp.Time, Operations: first})
	}
	for key, value := range job.Annotations {
		number, ok := batchNumber(key)
		if !ok {
			continue
		}
		batch, err := decodeOnce(value, operations.DecodeBatch)
		if err == nil && batch.Number != number {
			err = fmt.Errorf("annotation %s is of batch %d", key, batch.Number)
		}
		if errs = append(errs, err); err == nil {
			batch.Began = Later(batch.Began, job.CreationTimestamp.Time)
			batches = append(batches, batch)
		}
	}
	slices.SortFunc(batches, func(a, b operations.Batch) int { return cmp.Compare(a.Number, b.Number) })
	if err := errors.Join(errs...); err != nil {
		return batches, fmt.Errorf("reading Job %s: %w: %w", job.Name, ErrFormat, err)
	}
	return batches, nil
}

func firstOperations(job *batchv1.Job) ([]operations.Operation, error) {
	sent, ok := job.Spec.Template.Annotations[wellknown.AnnotationOperations]
	switch {
	case !ok:
		return nil, fmt.Errorf("its pod has no annotation %s", wellknown.AnnotationOperations)
	case job.Annotations[wellknown.AnnotationOperations] != sent:
		return nil, fmt.Errorf("its annotation %s is not the one of its pod", wellknown.AnnotationOperations)
	}
	return decodeOnce(sent, operations.Decode)
}

// decoded are batches by their text. A Job has many readers, and with each of its changes all but one of its
// batches are as before; nobody changes what was decoded.
var decoded = cache.NewLRUExpireCache(64)

// decodedLife is how long the text of a Job that is gone is kept.
const decodedLife = 10 * time.Minute

func decodeOnce[T any](text string, decode func([]byte) (T, error)) (T, error) {
	if known, ok := decoded.Get(text); ok {
		if value, ok := known.(T); ok {
			return value, nil
		}
	}
	value, err := decode([]byte(text))
	if err == nil {
		decoded.Add(text, value, decodedLife)
	}
	return value, err
}

// Operations returns those of the batches of a mount Job that are wanted; nil wants all. The error is ErrFormat.
func Operations(job *batchv1.Job, wanted func(batch int) bool) (ops []operations.Operation, err error) {
	batches, err := Batches(job)
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		if wanted == nil || wanted(batch.Number) {
			ops = append(ops, batch.Operations...)
		}
	}
	return ops, nil
}

// NewestBatch returns the number of the newest batch of a mount Job, which is never removed.
func NewestBatch(job *batchv1.Job) int {
	newest := operations.FirstBatch
	for key := range job.Annotations {
		if number, ok := batchNumber(key); ok {
			newest = max(newest, number)
		}
	}
	return newest
}

// batchNumber is the number of a later batch that an annotation has.
func batchNumber(annotation string) (number int, ok bool) {
	number, ok = wellknown.ParseAnnotationBatch(annotation)
	return number, ok && number > operations.FirstBatch
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{b, a}, time.Time.Compare) }

// AddBatch returns the changes of a mount Job's metadata that give its worker the next batch. The batches whose numbers
// are used are removed, and so are the marks of volumes that no other batch has, or they would fill the Job of a worker
// that serves for long. filledTrash is when one of them last moved a directory to the trash, or zero. The changes hold
// only for the Job as it was observed.
func AddBatch(job *batchv1.Job, batch operations.Batch, used []int, filledTrash time.Time) (map[string]any, error) {
	data, err := operations.EncodeBatch(batch)
	if err != nil {
		return nil, fmt.Errorf("giving Job %s another batch: %w", job.Name, err)
	}
	annotations := map[string]any{wellknown.AnnotationBatch(batch.Number): string(data)}
	for _, name := range unneeded(job, used) {
		annotations[name] = nil
	}
	if !filledTrash.IsZero() {
		annotations[wellknown.AnnotationFilledTrash] = filledTrash.UTC().Format(time.RFC3339)
	}
	return map[string]any{
		"resourceVersion": job.ResourceVersion, "annotations": annotations, "labels": countLabels(job.Labels, batch.Operations),
	}, nil
}

// maxOpenBytes of a Job's annotations leave room for a batch and for marks of used volumes: Kubernetes allows 256 KiB.
const maxOpenBytes = 128 << 10

// HasRoom says that a mount Job has room for another batch once those in used are removed from it.
func HasRoom(job *batchv1.Job, used []int) bool {
	size := 0
	for name, value := range job.Annotations {
		size += len(name) + len(value)
	}
	for _, name := range unneeded(job, used) {
		size -= len(name) + len(job.Annotations[name])
	}
	return size <= maxOpenBytes
}

// unneeded are the annotations of used batches, and the marks of volumes that only those have, if all can be read.
func unneeded(job *batchv1.Job, used []int) (names []string) {
	batches, err := Batches(job)
	volumes := sets.New[string]()
	for _, batch := range batches {
		if name := wellknown.AnnotationBatch(batch.Number); batch.Number > operations.FirstBatch && slices.Contains(used, batch.Number) {
			names = append(names, name)
			continue
		}
		for _, o := range batch.Operations {
			volumes.Insert(o.Volume)
		}
	}
	for name := range job.Annotations {
		if volume, ok := wellknown.ParseAnnotationUsed(name); ok && err == nil && !volumes.Has(volume) {
			names = append(names, name)
		}
	}
	return names
}

// Packed is the division of what waits, each with an operation: each is in exactly one of the three.
type Packed[T any] struct {
	Batch []T        // for the next Job
	Left  []T        // for later Jobs
	Unfit []Unfit[T] // cannot be sent with any Job
}

// Unfit is one that cannot be sent, and why.
type Unfit[T any] struct {
	Item T
	Err  error
}

// Pack chooses the operations of the next Job from those that wait: as many as maxCount and the annotation allow, at
// most one for each volume, in their order, so that each is sent at some time. Restores may fail and be repeated in
// large numbers: they get the rest of a Job after other operations, but always a share.
func Pack[T any](all []T, operationOf func(T) operations.Operation, maxCount int) Packed[T] {
	var packed Packed[T]
	ops := make([]operations.Operation, len(all))
	for i, item := range all {
		ops[i] = operationOf(item)
	}
	var others, restores []int // indexes of the first operation of each volume
	seen := map[string]bool{}
	errs := checkSendable(ops)
	for i, operation := range ops {
		if err := errs[i]; err != nil {
			packed.Unfit = append(packed.Unfit, Unfit[T]{all[i], err})
			continue
		}
		switch {
		case seen[operation.Volume]:
		case operation.Kind == operations.Restore:
			restores = append(restores, i)
		default:
			others = append(others, i)
		}
		seen[operation.Volume] = true
	}
	chosen := choose(ops, others, restores, max(maxCount, 1))
	slices.Sort(chosen)
	for i, item := range all {
		if _, ok := slices.BinarySearch(chosen, i); ok {
			packed.Batch = append(packed.Batch, item)
		} else if errs[i] == nil {
			packed.Left = append(packed.Left, item)
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

// checkedTogether operations take a tenth of the time that they take one by one, and nearly always all are sendable.
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

// sendable checks that mountjob decodes the same operations. Text that is not UTF-8 would become another path.
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
