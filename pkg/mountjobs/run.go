package mountjobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// run is how far a Job's pod came, whatever it was for.
type run struct {
	phase runPhase
	node  string
	// ended is when the container ended; zero unless exited.
	ended time.Time
	// exitCode and message are the container's, once it has exited.
	exitCode int32
	message  string
	// why says what went wrong, or is empty.
	why string
	// until is when something can be said of a run that goes on.
	until time.Time
	// overdue says that it counts as over because of the time alone.
	overdue bool
}

type runPhase int

const (
	goesOn   runPhase = iota // or has not begun
	exited                   // the container, or the Job says that it did, with code 0
	vanished                 // it is over, and nobody knows how it ended
	hung                     // it is past its time and will not die
)

// withoutReport says what there was in place of one.
func (r run) withoutReport() string {
	if r.message == "" {
		return r.why + " and left no report"
	}
	return r.why + " and left no report that can be read: " + words(r.message)
}

// observe follows the one pod of a Job. There can be more for a moment, if the Job controller
// has not seen its own pod yet; then none of them must be left.
func observe(job *batchv1.Job, pods []*corev1.Pod, now time.Time) run {
	mine := podsOf(job, pods)
	for _, pod := range mine {
		if !isOver(pod) {
			return observeLive(job, pod, now)
		}
	}
	for _, pod := range mine {
		if ended := containerOf(pod).State.Terminated; ended != nil {
			return exitedRun(pod, ended, endedAt(job, ended.FinishedAt.Time, now))
		}
	}
	if len(mine) > 0 { // never started, or forgotten with its node
		pod := mine[0]
		return run{phase: vanished, node: pod.Spec.NodeName, why: "the pod is over and its container is not known to have ended: " + words(pod.Status.Reason+" "+pod.Status.Message)}
	}
	return observeWithoutPod(job, now)
}

// podsOf gives the newest first.
func podsOf(job *batchv1.Job, pods []*corev1.Pod) []*corev1.Pod {
	var mine []*corev1.Pod
	for _, pod := range pods {
		if pod != nil && belongsTo(pod, job) {
			mine = append(mine, pod)
		}
	}
	slices.SortFunc(mine, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return mine
}

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		containerOf(pod).State.Terminated != nil
}

// containerOf is the state of mountjob; the zero value before kubelet knows it.
func containerOf(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == ContainerName {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// endedAt makes the best of what a node's clock says. A clock that is wrong must neither put off what
// follows from the end, nor have it be before things that came first. An end that nobody saw has no
// time.
func endedAt(job *batchv1.Job, finished, now time.Time) time.Time {
	if finished.IsZero() {
		return finished
	}
	latest := now
	for _, condition := range job.Status.Conditions {
		over := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		// A time before the Job's creation is of a clock that is slow, and says nothing.
		if at := condition.LastTransitionTime.Time; over && condition.Status == corev1.ConditionTrue && !at.Before(job.CreationTimestamp.Time) {
			latest = earlier(latest, at)
		}
	}
	if finished = earlier(finished, latest); finished.Before(job.CreationTimestamp.Time) {
		return job.CreationTimestamp.Time
	}
	return finished
}

func exitedRun(pod *corev1.Pod, ended *corev1.ContainerStateTerminated, at time.Time) run {
	r := run{phase: exited, node: pod.Spec.NodeName, ended: at, exitCode: ended.ExitCode, message: ended.Message}
	if reason, message := containerTrouble(pod, ended.Reason, ended.Message); reason != "" {
		return run{phase: vanished, node: r.node, ended: r.ended, why: message}
	}
	r.why = fmt.Sprintf("the container ended with code %d (%s)", ended.ExitCode, shorten(cmp.Or(pod.Status.Reason, ended.Reason, "no reason"), 64))
	return r
}

// observeLive tells a run that goes on from one that is hung. A pod that is being deleted has
// its grace; deletionTimestamp is when that is over.
func observeLive(job *batchv1.Job, pod *corev1.Pod, now time.Time) run {
	r := run{node: pod.Spec.NodeName, until: endOf(job, now)}
	if now.After(r.until) {
		r.phase, r.why, r.overdue = hung, "it is past its deadline and its pod has not ended", true
		return r
	}
	if pod.DeletionTimestamp == nil || !hasCondition(job, batchv1.JobFailureTarget, batchv1.JobFailed) {
		return r
	}
	if now.After(pod.DeletionTimestamp.Time) {
		r.phase, r.why, r.overdue = hung, "its pod is being deleted and does not end", true
		return r
	}
	r.until = earlier(r.until, pod.DeletionTimestamp.Time)
	return r
}

func observeWithoutPod(job *batchv1.Job, now time.Time) run {
	if hasCondition(job, batchv1.JobComplete, batchv1.JobSuccessCriteriaMet) {
		return run{phase: exited, why: "its pod has succeeded and is gone"}
	}
	for _, condition := range job.Status.Conditions {
		failed := condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget
		if failed && condition.Status == corev1.ConditionTrue {
			return run{phase: vanished, why: words("the Job has failed and there is no pod: " + condition.Reason + " " + condition.Message)}
		}
	}
	if job.DeletionTimestamp != nil { // kept by our finalizer only; no pod is made any more
		return run{phase: vanished, why: "somebody has deleted the Job, and there is no pod"}
	}
	if end := endOf(job, now); !now.After(end) {
		return run{until: end}
	}
	return run{phase: vanished, why: "it is past its deadline and there is no pod", overdue: true}
}

// IsOver says that the cluster is done with a Job, and has counted its pods.
func IsOver(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete, batchv1.JobFailed)
}

func hasCondition(job *batchv1.Job, types ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue && slices.Contains(types, condition.Type)
	})
}

// endOf is when nothing of a Job can be alive: its deadline, and the grace of its pod. The
// deadline can be edited away; ours then holds. The start is said by the clock of the Job controller,
// and counts between the Job's creation and now.
func endOf(job *batchv1.Job, now time.Time) time.Time {
	start := job.CreationTimestamp.Time
	if at := job.Status.StartTime; at != nil && at.After(start) && !at.After(now) {
		start = at.Time
	}
	deadline := wellknown.DefaultMountJobTimeout + wellknown.MountJobStartGrace
	if seconds := job.Spec.ActiveDeadlineSeconds; seconds != nil {
		deadline = time.Duration(min(*seconds, math.MaxInt32)) * time.Second
	}
	return start.Add(deadline + terminationGraceSeconds*time.Second)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
