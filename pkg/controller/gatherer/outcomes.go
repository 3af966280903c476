package gatherer

import (
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// outcomes remembers what was read from each Job, because hundreds of claims ask for the same
// one, and since when it is known.
type outcomes struct {
	mu   sync.Mutex // protects following
	read map[types.UID]reading
	seen map[types.UID]sighting
}

// sighting is when this replica first saw a Job, and first saw that it was over, by the monotonic
// clock. That one neither is wrong nor jumps, but knows nothing of the time before.
type sighting struct{ first, over time.Time }

type reading struct {
	versions string // of the Job and its pods
	until    time.Time
	outcome  mountjobs.Outcome
	err      error
	// positions are those of the operations, by volume: all of a Job's volumes ask, one by one.
	positions map[string]int
}

// Outcome is a mount Job read back. The errors are those of mountjobs.Read.
func (g *Gatherer) Outcome(job *batchv1.Job) (mountjobs.Outcome, error) {
	read := g.readingOf(job)
	return read.outcome, read.err
}

func (g *Gatherer) readingOf(job *batchv1.Job) reading {
	pods := g.Caches.PodsOfJob(job)
	versions := versionsOf(job, pods)
	now := g.Now()
	g.outcomes.mu.Lock()
	defer g.outcomes.mu.Unlock()
	known, ok := g.outcomes.read[job.UID]
	if ok && known.versions == versions && (known.until.IsZero() || now.Before(known.until)) {
		return known
	}
	outcome, err := g.read(job, pods, now)
	if g.outcomes.read == nil {
		g.outcomes.read = map[types.UID]reading{}
	}
	read := reading{versions, outcome.Until, outcome, err, positionsOf(outcome.Operations)}
	g.outcomes.read[job.UID] = read
	return read
}

// positionsOf has the first operation of each volume.
func positionsOf(ops []operations.Operation) map[string]int {
	positions := make(map[string]int, len(ops))
	for i, operation := range slices.Backward(ops) {
		positions[operation.Volume] = i
	}
	return positions
}

// read also notes when the Job was seen. The caller holds the lock.
func (g *Gatherer) read(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (mountjobs.Outcome, error) {
	outcome, err := mountjobs.Read(job, pods, now)
	seen := g.outcomes.see(job.UID)
	if outcome.Overdue && seen.isRecent() {
		outcome, err = mountjobs.Read(job, pods, job.CreationTimestamp.Time)
		outcome.Until = now.Add(mountjobs.ClockGuard)
	}
	if outcome.HoldsFileSystem() {
		seen.over = time.Time{}
	} else if seen.over.IsZero() {
		seen.over = time.Now()
	}
	g.outcomes.seen[job.UID] = seen
	return outcome, err
}

// Sweep is a sweep Job read back. The error is that of mountjobs.ReadSweep.
func (g *Gatherer) Sweep(job *batchv1.Job, pods []*corev1.Pod) (mountjobs.SweepOutcome, error) {
	now := g.Now()
	outcome, err := mountjobs.ReadSweep(job, pods, now)
	g.outcomes.mu.Lock()
	defer g.outcomes.mu.Unlock()
	if seen := g.outcomes.see(job.UID); outcome.Overdue && seen.isRecent() {
		outcome, err = mountjobs.ReadSweep(job, pods, job.CreationTimestamp.Time)
		outcome.Until = now.Add(mountjobs.ClockGuard)
	}
	return outcome, err
}

// see gives the sighting of a Job, which may be the first.
func (o *outcomes) see(job types.UID) sighting {
	seen, ok := o.seen[job]
	if !ok {
		seen = sighting{first: time.Now()}
		if o.seen == nil {
			o.seen = map[types.UID]sighting{}
		}
		o.seen[job] = seen
	}
	return seen
}

// isRecent says that a Job has not been known for long enough to be believed overdue.
func (s sighting) isRecent() bool { return time.Since(s.first) < mountjobs.ClockGuard }

// overSince is when a Job was first seen to be over, on the clock of Now; zero if it was not.
func (g *Gatherer) overSince(job types.UID) time.Time {
	g.outcomes.mu.Lock()
	over := g.outcomes.seen[job].over
	g.outcomes.mu.Unlock()
	if over.IsZero() {
		return over
	}
	return g.Now().Add(-time.Since(over))
}

func versionsOf(job *batchv1.Job, pods []*corev1.Pod) string {
	versions := make([]string, 0, len(pods)+1)
	for _, pod := range pods {
		versions = append(versions, string(pod.UID)+"/"+pod.ResourceVersion)
	}
	slices.Sort(versions)
	return job.ResourceVersion + " " + strings.Join(versions, " ")
}

// forgetOld drops what was read from a Job that is another one now.
func (g *Gatherer) forgetOld(object any) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return
	}
	g.outcomes.mu.Lock()
	defer g.outcomes.mu.Unlock()
	delete(g.outcomes.read, job.UID)
}

// forgetGone drops all that is known of a Job that was deleted.
func (g *Gatherer) forgetGone(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	g.forgetOld(object)
	if job, ok := object.(*batchv1.Job); ok {
		g.outcomes.mu.Lock()
		defer g.outcomes.mu.Unlock()
		delete(g.outcomes.seen, job.UID)
	}
}

func (g *Gatherer) attempt(job *batchv1.Job, o mountjobs.Outcome, operation operations.Operation, result operations.Result) lifecycle.Attempt {
	ended := o.Ended
	if ended.IsZero() && o.State != mountjobs.Running {
		ended = endOf(job)
	}
	return lifecycle.Attempt{
		Job:          job.Name,
		JobSize:      len(o.Operations),
		FileSystemID: o.Name.FileSystemID,
		Began:        job.CreationTimestamp.Time,
		Ended:        ended,
		OverSince:    g.overSince(job.UID),
		Until:        o.Until,
		State:        o.State,
		Operation:    operation,
		Result:       result,
		Message:      o.Message,
		Unused:       slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) && job.Annotations[wellknown.AnnotationUsed(operation.Volume)] == "",
	}
}

// endOf is when a Job was seen to have ended, zero where nobody wrote it down.
func endOf(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
