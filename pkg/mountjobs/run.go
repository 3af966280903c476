package mountjobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// run is the run of a Job's pod, without the Job's Name. When its State is Finished, the container has ended and
// may have left a report.
type run struct {
	Status
	exitCode int32
	report   string
}

// lose makes a run Lost whose report is missing, or cannot be read because of the error. Users get no text of a
// report, which may name claims of other namespaces, but the line that mountjob leaves in place of one.
func (s *Status) lose(r run, err error) {
	s.State = Lost
	switch {
	case r.report == "":
		s.Message = r.Message + " and left no report"
	case strings.HasPrefix(r.report, noReport):
		s.Message = r.Message + " and left no report: " + quote(r.report)
	default:
		s.Message = fmt.Sprintf("%s and left no report that can be read (%d bytes): %s", r.Message, len(r.report), quote(err.Error()))
		s.Unread = r.report
	}
}

// noReport begins a termination message that is no report, but says why there is none.
const noReport = "mountjob: "

// observe returns the run of a Job's pod. There can be more than one pod for a moment, if the cache of the
// Job controller is behind; then all must have ended.
func observe(job *batchv1.Job, pods []*corev1.Pod, now time.Time) run {
	mine := podsOf(job, pods)
	for _, pod := range mine {
		if !IsPodOver(pod) {
			return observeLive(job, pod, now)
		}
	}
	for _, pod := range mine {
		if ended := ContainerOf(pod).State.Terminated; ended != nil {
			return exitedRun(job, pod, ended, endedAt(job, ended.FinishedAt.Time, now))
		}
	}
	if len(mine) > 0 { // never started, or forgotten with its node
		pod := mine[0]
		return lost(pod.Spec.NodeName, "the pod is over and its container is not known to have ended: "+quote(pod.Status.Reason+" "+pod.Status.Message))
	}
	return observeWithoutPod(job, now)
}

// podsOf returns the pods of a Job, newest first. It compares the owner, which the Job controller sets, and not
// labels, which any pod of the namespace may have.
func podsOf(job *batchv1.Job, pods []*corev1.Pod) []*corev1.Pod {
	mine := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return pod == nil || pod.Namespace != job.Namespace || !metav1.IsControlledBy(pod, job)
	})
	slices.SortFunc(mine, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return mine
}

// NewestPod returns the newest of the pods of a Job, nil if there is none.
func NewestPod(job *batchv1.Job, pods []*corev1.Pod) *corev1.Pod {
	if mine := podsOf(job, pods); len(mine) > 0 {
		return mine[0]
	}
	return nil
}

// IsPodOver reports whether a pod of a Job has ended, or at least mountjob has.
func IsPodOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		ContainerOf(pod).State.Terminated != nil
}

// ContainerOf returns the status of mountjob; the zero value before kubelet reports it.
func ContainerOf(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == ContainerName {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// endedAt corrects the time of a node's clock, which may be wrong: the end is not after now or the Job's
// own end, and not before the Job's creation. If it was not observed, it is zero.
func endedAt(job *batchv1.Job, finished, now time.Time) time.Time {
	if finished.IsZero() {
		return finished
	}
	latest := now
	// A time before the Job's creation is of a clock that is slow, and says nothing.
	if at := EndOf(job); !at.IsZero() && !at.Before(job.CreationTimestamp.Time) {
		latest = earlier(latest, at)
	}
	return Later(earlier(finished, latest), job.CreationTimestamp.Time)
}

func exitedRun(job *batchv1.Job, pod *corev1.Pod, ended *corev1.ContainerStateTerminated, at time.Time) run {
	r := run{Status: Status{State: Finished, Node: pod.Spec.NodeName, Ended: at}, exitCode: ended.ExitCode, report: ended.Message}
	if reason, message := (diagnosis{job: job, pod: pod}).container(ended.Reason, ended.Message); reason != "" {
		r.State, r.Message = Lost, message
		return r
	}
	r.Message = fmt.Sprintf("the container ended with code %d (%s)", ended.ExitCode, shorten(cmp.Or(pod.Status.Reason, ended.Reason, "no reason"), 64))
	return r
}

// observeLive distinguishes a run that goes on from a stuck one. A deleted pod's grace ends at its deletionTimestamp.
func observeLive(job *batchv1.Job, pod *corev1.Pod, now time.Time) run {
	r := run{Status: Status{State: Running, Node: pod.Spec.NodeName, Until: deadlineOf(job, now)}}
	switch {
	case now.After(r.Until):
		r.State, r.Message, r.Overdue = Stuck, "it is past its deadline and its pod has not ended", true
	case pod.DeletionTimestamp == nil || conditionOf(job, batchv1.JobFailureTarget, batchv1.JobFailed) == nil:
	case now.After(pod.DeletionTimestamp.Time):
		r.State, r.Message, r.Overdue = Stuck, "its pod is being deleted and does not end", true
	default:
		r.Until = earlier(r.Until, pod.DeletionTimestamp.Time)
	}
	return r
}

func observeWithoutPod(job *batchv1.Job, now time.Time) run {
	if conditionOf(job, batchv1.JobComplete, batchv1.JobSuccessCriteriaMet) != nil {
		return run{Status: Status{State: Finished, Message: "its pod has succeeded and is gone"}}
	}
	if failed := conditionOf(job, batchv1.JobFailed, batchv1.JobFailureTarget); failed != nil {
		return lost("", quote("the Job has failed and there is no pod: "+failed.Reason+" "+failed.Message))
	}
	if job.DeletionTimestamp != nil { // only our finalizer keeps it; no pod is created any more
		return lost("", "the Job was deleted, and there is no pod")
	}
	if end := deadlineOf(job, now); !now.After(end) {
		return run{Status: Status{State: Running, Until: end}}
	}
	return run{Status: Status{State: Lost, Message: "it is past its deadline and there is no pod", Overdue: true}}
}

func lost(node, message string) run {
	return run{Status: Status{State: Lost, Node: node, Message: message}}
}

// IsOver reports whether the Job controller has finished a Job.
func IsOver(job *batchv1.Job) bool {
	return conditionOf(job, batchv1.JobComplete, batchv1.JobFailed) != nil
}

// EndOf returns the time at which a Job ended by its conditions; zero if they have none.
func EndOf(job *batchv1.Job) time.Time {
	if over := conditionOf(job, batchv1.JobComplete, batchv1.JobFailed); over != nil {
		return over.LastTransitionTime.Time
	}
	return time.Time{}
}

// conditionOf returns the first true condition of one of the types, nil if there is none.
func conditionOf(job *batchv1.Job, types ...batchv1.JobConditionType) *batchv1.JobCondition {
	i := slices.IndexFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue && slices.Contains(types, condition.Type)
	})
	if i < 0 {
		return nil
	}
	return &job.Status.Conditions[i]
}

// deadlineOf returns when no process of a Job can be alive: its deadline, or our default if an edit has removed it, and
// the grace period of its pod. The start is by the Job controller's clock: it counts between the creation and now.
func deadlineOf(job *batchv1.Job, now time.Time) time.Time {
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

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// ClockGuard is how long after a replica first saw a Job, or that it was over, it does not start the next one because
// of a time in an object. Deadlines and most waits are longer; if clocks disagree, there is at most one Job a minute.
const ClockGuard = time.Minute

// Backoff returns the wait before the next try after failures in a row: twice as long each time, up to sixteen times.
func Backoff(first time.Duration, failures int) time.Duration {
	if failures < 1 || first <= 0 {
		return 0
	}
	return first * time.Duration(min(1<<min(failures-1, 30), wellknown.MaxProvisionBackoffFactor))
}
