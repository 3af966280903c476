package observe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// outcomes caches what was read from each Job, because hundreds of claims ask for the same one, and
// when this replica observed it.
type outcomes struct {
	mu   sync.Mutex
	jobs map[types.UID]*observedJob // guarded by mu
}

// observedJob has when this replica first observed a Job, and first observed that it was over, by the
// monotonic clock. That one neither is wrong nor jumps, but knows nothing of the time before.
type observedJob struct {
	first, over time.Time
	unread      string // the last report that OnUnread was called with
	reading
}

type reading struct {
	versions string // of the Job and its pods
	outcome  mountjobs.Outcome
	err      error
	// positions are those of the operations, by volume: all of a Job's volumes ask, one by one.
	positions map[string][]int
}

// Outcome is a Job read back. The errors are those of mountjobs.Read.
func (g *Gatherer) Outcome(job *batchv1.Job) (mountjobs.Outcome, error) {
	read := g.read(job)
	return read.outcome, read.err
}

func (g *Gatherer) read(job *batchv1.Job) reading {
	pods := g.Caches.PodsOfJob(job)
	reported := g.Reported(job.UID)
	versions, now := fmt.Sprintf("%s %d", versionsOf(job, pods), len(reported)), g.Now()
	g.outcomes.mu.Lock()
	defer g.outcomes.mu.Unlock()
	observed := g.outcomes.jobs[job.UID]
	if observed == nil {
		observed = &observedJob{first: time.Now()}
		g.outcomes.jobs[job.UID] = observed
	}
	if until := observed.outcome.Until; observed.versions == versions && (until.IsZero() || now.Before(until)) {
		return observed.reading
	}
	read := reading{versions: versions}
	read.outcome, read.err = mountjobs.Read(job, pods, now)
	if read.outcome.Overdue && time.Since(observed.first) < mountjobs.ClockGuard { // the clocks may disagree
		read.outcome, read.err = mountjobs.Read(job, pods, job.CreationTimestamp.Time)
		read.outcome.Until = now.Add(mountjobs.ClockGuard)
	}
	if unread := read.outcome.Unread; unread != "" && unread != observed.unread {
		observed.unread = unread
		g.OnUnread(job.Name, unread)
	}
	read.outcome.Use(reported)
	read.positions = make(map[string][]int, len(read.outcome.Operations))
	for i, operation := range read.outcome.Operations {
		read.positions[operation.Volume] = append(read.positions[operation.Volume], i)
	}
	observed.reading = read
	if read.outcome.HoldsFileSystem() {
		observed.over = time.Time{}
	} else if observed.over.IsZero() {
		observed.over = time.Now()
	}
	return read
}

// overSince returns the time when a Job was first observed to be over, on the clock of Now; zero if it was not.
func (g *Gatherer) overSince(job types.UID) time.Time {
	g.outcomes.mu.Lock()
	defer g.outcomes.mu.Unlock()
	if observed := g.outcomes.jobs[job]; observed != nil && !observed.over.IsZero() {
		return g.Now().Add(-time.Since(observed.over))
	}
	return time.Time{}
}

func versionsOf(job *batchv1.Job, pods []*corev1.Pod) string {
	versions := make([]string, 0, len(pods)+1)
	for _, pod := range pods {
		versions = append(versions, string(pod.UID)+"/"+pod.ResourceVersion)
	}
	slices.Sort(versions)
	return job.ResourceVersion + " " + strings.Join(versions, " ")
}

// forget drops what was read from a Job that was changed, and all that is known of one that was deleted.
func (o *outcomes) forget(before, after any) {
	job, ok := before.(*batchv1.Job)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if observed := o.jobs[job.UID]; after == nil {
		delete(o.jobs, job.UID)
	} else if observed != nil {
		observed.reading = reading{}
	}
}

// Attempt returns the nth operation of a Job, and what became of it.
func (g *Gatherer) Attempt(job *batchv1.Job, o mountjobs.Outcome, n int) decide.Attempt {
	run := o.RunOf(n)
	a := decide.Attempt{
		Job:          job.Name,
		JobNumber:    o.Name.Number,
		Batch:        run.Number,
		BatchSize:    run.Count,
		FileSystemID: o.Name.FileSystemID,
		Began:        run.Began,
		Ended:        run.Ended,
		State:        o.State,
		Operation:    o.Operations[n],
		Result:       o.Report.Results[n],
		Message:      o.Message,
	}
	a.Unused = mountjobs.IsUnreleased(job) && !isMarked(job, a)
	switch {
	case o.State != mountjobs.Running:
		a.OverSince = g.overSince(job.UID)
		if a.Ended.IsZero() {
			a.Ended = mountjobs.EndOf(job)
		}
	case run.Running:
		a.Until = o.Until
	default: // the worker has reported it, and waits
		a.State = mountjobs.Finished
	}
	return a
}

// isMarked reports whether an annotation of the Job forbids to create a volume from an attempt. A mark is as old
// as the batch whose number it has.
func isMarked(job *batchv1.Job, a decide.Attempt) bool {
	if !a.Operation.AddsOwner() && !a.Operation.Abandon {
		return false
	}
	mark := job.Annotations[wellknown.AnnotationUsed(a.Operation.Volume)]
	if mark == "" {
		return false
	}
	number, err := strconv.Atoi(mark)
	if err != nil {
		number = operations.FirstBatch
	}
	return a.Batch <= number
}
