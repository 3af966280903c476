package mountjobs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Batches returns the batches that a mount Job has: the first, and those that its worker was given, without
// those that were removed because everything that should follow from them has. The error is ErrFormat; it
// comes with the batches that can be read.
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
		batch, err := operations.DecodeBatch([]byte(value))
		if err == nil && batch.Number != number {
			err = fmt.Errorf("annotation %s is of batch %d", key, batch.Number)
		}
		if errs = append(errs, err); err == nil {
			batch.Began = latest(batch.Began, job.CreationTimestamp.Time)
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
	return operations.Decode([]byte(sent))
}

// Operations returns those of all batches that a mount Job has. The error is ErrFormat.
func Operations(job *batchv1.Job) (ops []operations.Operation, err error) {
	batches, err := Batches(job)
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		ops = append(ops, batch.Operations...)
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
