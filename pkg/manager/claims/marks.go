package claims

import (
	"context"
	"maps"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
)

// marksDelay collects marks of one Job: each write of a Job sends all of its operations to everybody who watches
// it.
const marksDelay = 100 * time.Millisecond

// marks collects annotations of Jobs, to write those of one Job at once.
type marks struct {
	write func(ctx context.Context, job *batchv1.Job, annotations map[string]string) error

	mu      sync.Mutex
	waiting map[types.UID]*marksOfJob // guarded by mu
}

type marksOfJob struct {
	annotations map[string]string // guarded by marks.mu, until it is written
	written     chan struct{}
	err         error // once written is closed
}

// add returns when the annotations were written.
func (m *marks) add(ctx context.Context, job *batchv1.Job, annotations map[string]string) error {
	m.mu.Lock()
	of, others := m.waiting[job.UID]
	if !others {
		if m.waiting == nil {
			m.waiting = map[types.UID]*marksOfJob{}
		}
		of = &marksOfJob{annotations: map[string]string{}, written: make(chan struct{})}
		m.waiting[job.UID] = of
	}
	maps.Copy(of.annotations, annotations)
	m.mu.Unlock()
	if others {
		<-of.written
		return of.err
	}
	m.writeSoon(ctx, job, of)
	return of.err
}

// writeSoon also writes when the context ends meanwhile: the request has an error then.
func (m *marks) writeSoon(ctx context.Context, job *batchv1.Job, of *marksOfJob) {
	defer close(of.written)
	select {
	case <-ctx.Done():
	case <-time.After(marksDelay):
	}
	m.mu.Lock()
	delete(m.waiting, job.UID)
	m.mu.Unlock()
	of.err = m.write(ctx, job, of.annotations)
}
