package mountjobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Reason is a stable word for what keeps a Job's pod from starting.
type Reason string

// Reasons why a pod does not start.
const (
	MountRefused         Reason = "MountRefused"         // nobody listens on the tunnel's port
	MountTimedOut        Reason = "MountTimedOut"        // the tunnel is there, the file system is silent
	MountDenied          Reason = "MountDenied"          // the file system says no
	MountHelperMissing   Reason = "MountHelperMissing"   // the node has no mount.nfs, or no NFS in its kernel
	MountPathMissing     Reason = "MountPathMissing"     // the server has no such directory
	MountFailed          Reason = "MountFailed"          // anything else about the mount
	ImagePullFailed      Reason = "ImagePullFailed"      // the image cannot be had
	ProgramMissing       Reason = "ProgramMissing"       // the image is another one
	ContainerFailed      Reason = "ContainerFailed"      // the node cannot make the container
	NoNodeAgent          Reason = "NoNodeAgent"          // no node with an agent takes the pod
	Unschedulable        Reason = "Unschedulable"        // no node takes the pod
	RootClaimUnavailable Reason = "RootClaimUnavailable" // the root claim is missing or not bound
	QuotaExceeded        Reason = "QuotaExceeded"        // the namespace may have no more
	AdmissionRefused     Reason = "AdmissionRefused"     // the cluster's policy forbids the pod
)

// Diagnose says what keeps a Job from running, with the cluster's own words and what to do
// next, or nothing while all is well. pod is nil as long as there is none; of the events only
// those about the Job and its pod count.
//
//	no pod                          the Job's events (quota, admission)
//	pod without a node              the scheduler's words
//	container waits for its image,
//	or could not be made            kubelet's words
//	container waits                 the pod's events (mount, sandbox)
//	container has started           nothing
func Diagnose(job *batchv1.Job, pod *corev1.Pod, events []corev1.Event) (reason Reason, message string) {
	switch {
	case hasCondition(job, batchv1.JobComplete, batchv1.JobFailed):
		return "", ""
	case pod == nil:
		return creationTrouble(job, events)
	case pod.Spec.NodeName == "":
		return schedulingTrouble(job, pod, events)
	}
	state := containerOf(pod).State
	switch {
	case state.Running != nil:
		return "", ""
	case state.Terminated != nil:
		return containerTrouble(pod, state.Terminated.Reason, state.Terminated.Message)
	case state.Waiting != nil:
		message = withPullError(pod, state.Waiting.Message, events)
		if reason, message = containerTrouble(pod, state.Waiting.Reason, message); reason != "" {
			return reason, message
		}
	}
	return startingTrouble(pod, events)
}

// finding is one thing that can be wrong: if a text contains any of the signs, this is what it
// is and what to do about it.
type finding struct {
	signs  []string // in lower case
	reason Reason
	what   string
	next   string
}

func (f finding) matches(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(f.signs, func(sign string) bool { return strings.Contains(text, sign) })
}

// firstMatch looks findings through in their order; the last of them has no signs, and is for
// what nobody thought of.
func firstMatch(findings []finding, text string) finding {
	last := len(findings) - 1
	for _, f := range findings[:last] {
		if f.matches(text) {
			return f
		}
	}
	return findings[last]
}

// tell makes the message: what it is, somebody's own words, the next step.
func (f finding) tell(text string) (Reason, string) {
	return f.reason, fmt.Sprintf("%s (%s): %s", f.what, words(text), f.next)
}

// about chooses the events of one object that have one of the reasons, the newest first.
func about(uid, name string, events []corev1.Event, reasons ...string) []corev1.Event {
	var chosen []corev1.Event
	for _, event := range events {
		object := event.InvolvedObject
		same := string(object.UID) == uid || object.UID == "" && object.Name == name
		if same && slices.Contains(reasons, event.Reason) {
			chosen = append(chosen, event)
		}
	}
	slices.SortStableFunc(chosen, func(a, b corev1.Event) int { return lastSeen(b).Compare(lastSeen(a)) })
	return chosen
}

// lastSeen reads the old and the new way of counting events.
func lastSeen(event corev1.Event) time.Time {
	latest := event.CreationTimestamp.Time
	for _, t := range []time.Time{event.LastTimestamp.Time, event.EventTime.Time} {
		if t.After(latest) {
			latest = t
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(latest) {
		latest = event.Series.LastObservedTime.Time
	}
	return latest
}
