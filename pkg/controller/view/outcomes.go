package view

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
	"gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// outcomes remembers what was read from each Job, because hundreds of claims ask for the same
// one. It holds nothing that the caches do not.
type outcomes struct {
	mu   sync.Mutex // protects known
	read map[types.UID]reading
}

type reading struct {
	versions string // of the Job and its pods
	until    time.Time
	outcome  mountjobs.Outcome
	err      error
	// positions are those of the operations, by volume: all of a Job's volumes ask, one by one.
	positions map[string]int
}

// Outcome is a mount Job read back. The errors are those of mountjobs.Read.
func (v *View) Outcome(job *batchv1.Job) (mountjobs.Outcome, error) {
	read := v.read(job)
	return read.outcome, read.err
}

func (v *View) read(job *batchv1.Job) reading {
	pods := v.Caches.PodsOfJob(job)
	versions := versionsOf(job, pods)
	now := v.Now()
	v.outcomes.mu.Lock()
	defer v.outcomes.mu.Unlock()
	known, ok := v.outcomes.read[job.UID]
	if ok && known.versions == versions && (known.until.IsZero() || now.Before(known.until)) {
		return known
	}
	outcome, err := mountjobs.Read(job, pods, now)
	if v.outcomes.read == nil {
		v.outcomes.read = map[types.UID]reading{}
	}
	read := reading{versions, outcome.Until, outcome, err, positionsOf(outcome.Operations)}
	v.outcomes.read[job.UID] = read
	return read
}

// positionsOf has the first operation of each volume.
func positionsOf(operations []directories.Operation) map[string]int {
	positions := make(map[string]int, len(operations))
	for i, operation := range slices.Backward(operations) {
		positions[operation.Volume] = i
	}
	return positions
}

func versionsOf(job *batchv1.Job, pods []*corev1.Pod) string {
	versions := make([]string, 0, len(pods)+1)
	for _, pod := range pods {
		versions = append(versions, string(pod.UID)+"/"+pod.ResourceVersion)
	}
	slices.Sort(versions)
	return job.ResourceVersion + " " + strings.Join(versions, " ")
}

// forgetOld drops what was read from Jobs that are gone, or used up.
func (v *View) forgetOld(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	job, ok := object.(*batchv1.Job)
	if !ok {
		return
	}
	v.outcomes.mu.Lock()
	defer v.outcomes.mu.Unlock()
	delete(v.outcomes.read, job.UID)
}

func attempt(job *batchv1.Job, o mountjobs.Outcome, operation directories.Operation, result directories.Result) lifecycle.Attempt {
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
		Until:        o.Until,
		State:        o.State,
		Operation:    operation,
		Result:       result,
		Message:      o.Message,
		Fresh:        slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) && job.Annotations[wellknown.AnnotationUsed(operation.Volume)] == "",
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
