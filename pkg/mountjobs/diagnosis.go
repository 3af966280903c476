package mountjobs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Events of kubelet that matter until the container starts.
const (
	failedMount   = "FailedMount"
	failedSandbox = "FailedCreatePodSandBox"
)

// Diagnose returns what keeps a Job from running, with the text of the cluster and what to do next, or
// nothing if the Job is not kept from running. pod is nil as long as there is none; of the events only
// those about the Job and its pod count.
//
//	no pod                          the Job's events (quota, admission)
//	pod without a node              the scheduler's message
//	container waits for its image,
//	or could not be created         kubelet's message
//	container waits                 the pod's events (mount, sandbox)
//	container has started           nothing
func Diagnose(job *batchv1.Job, pod *corev1.Pod, events []corev1.Event) (reason Reason, message string) {
	d := diagnosis{job: job, pod: pod, events: events}
	switch {
	case IsOver(job):
		return "", ""
	case pod == nil:
		return d.creation()
	case pod.Spec.NodeName == "":
		return d.scheduling()
	}
	state := ContainerOf(pod).State
	switch {
	case state.Running != nil:
		return "", ""
	case state.Terminated != nil:
		return d.container(state.Terminated.Reason, state.Terminated.Message)
	case state.Waiting != nil:
		if reason, message = d.container(state.Waiting.Reason, d.pullError(state.Waiting.Message)); reason != "" {
			return reason, message
		}
	}
	return d.start()
}

// diagnosis is what the causes of a pod that does not start are found from.
type diagnosis struct {
	job    *batchv1.Job
	pod    *corev1.Pod // nil when there is none
	events []corev1.Event
	tunnel string // the address that was mounted; only for mountCauses
}

var podForbidden = regexp.MustCompile(`^(Error creating: )?(pods "[^"]*" is forbidden: )?`)

// creation is about a pod that the Job controller could not create.
func (d diagnosis) creation() (Reason, string) {
	found := d.eventsOf(d.job, "FailedCreate")
	if len(found) == 0 {
		return "", ""
	}
	return d.explain(creationCauses, podForbidden.ReplaceAllString(found[0].Message, ""))
}

// scheduling is about a pod without a node. The scheduler's event is there before its condition.
func (d diagnosis) scheduling() (Reason, string) {
	text := ""
	if found := d.eventsOf(d.pod, "FailedScheduling"); len(found) > 0 {
		text = found[0].Message
	}
	for _, condition := range d.pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			text = cmp.Or(condition.Message, text)
		}
	}
	if text == "" {
		return "", ""
	}
	text, _, _ = strings.Cut(text, " preemption:") // repeats the text
	causes := d.matching(schedulingCauses, text)
	found := causes[0]
	for _, other := range causes[1:max(len(causes)-1, 1)] { // of other nodes; each remedy helps
		found.remedy += "; or " + other.remedy
	}
	return d.report(found, text)
}

// start is about a pod whose container waits. Kubelet mounts first and creates the sandbox then, so the
// newest event says how far it came. That it went on from there is only in the pod: the events about
// progress are of type Normal, and those are not listed.
func (d diagnosis) start() (Reason, string) {
	found := d.eventsOf(d.pod, failedMount, failedSandbox)
	switch {
	case len(found) == 0 || hasPodCondition(d.pod, corev1.PodReadyToStartContainers, corev1.ConditionTrue):
		return "", ""
	case found[0].Reason == failedSandbox:
		return d.explain(sandboxCauses, found[0].Message)
	}
	return d.mount(mountMessage(found))
}

// mountMessage returns the newest message with a cause, or else kubelet's newest summary of volumes to be mounted.
func mountMessage(events []corev1.Event) string {
	summary := ""
	for _, event := range events {
		if event.Reason != failedMount {
			continue
		}
		if !strings.Contains(event.Message, "unmounted volumes=") {
			return event.Message
		}
		summary = cmp.Or(summary, event.Message)
	}
	return summary
}

var (
	mountOutput = regexp.MustCompile(`(?s)\nOutput: (.*)`)
	mountPort   = regexp.MustCompile(`\bport=([0-9]{1,5})\b`)
)

// mount is about a failed mount. Kubelet's message has the arguments, and after "Output:" what mount(8) wrote.
func (d diagnosis) mount(message string) (Reason, string) {
	d.tunnel = wellknown.LoopbackAddress
	if port := mountPort.FindStringSubmatch(message); port != nil {
		d.tunnel += ":" + port[1]
	}
	if output := mountOutput.FindStringSubmatch(message); output != nil {
		message = output[1]
	}
	return d.explain(mountCauses, message)
}

// container is about a container that could not be created; reason is that of its state. Reasons why a
// process ends, such as Error or OOMKilled, are not of this kind.
func (d diagnosis) container(reason, message string) (Reason, string) {
	text := cmp.Or(message, reason)
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		return d.explain(imageCauses, text)
	case "StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError", "CreateContainerConfigError":
		return d.explain(containerCauses, text)
	}
	return "", ""
}

// pullError returns the cause of a back-off, which kubelets before 1.32 write to an event only.
func (d diagnosis) pullError(message string) string {
	if !strings.HasPrefix(message, "Back-off pulling image") || strings.Contains(message, ": ") {
		return message
	}
	for _, event := range d.eventsOf(d.pod, "Failed") {
		if strings.HasPrefix(event.Message, "Failed to pull image") {
			return event.Message
		}
	}
	return message
}

// explain reports the first cause that matches the text.
func (d diagnosis) explain(causes []cause, text string) (Reason, string) {
	return d.report(d.matching(causes, text)[0], text)
}

// matching returns the causes that match a text. The last of the causes always does.
func (d diagnosis) matching(causes []cause, text string) []cause {
	text = strings.ToLower(text)
	return slices.DeleteFunc(slices.Clone(causes), func(c cause) bool {
		return !slices.ContainsFunc(strings.Split(d.fill(c.patterns), "|"), func(pattern string) bool {
			return strings.Contains(text, pattern)
		})
	})
}

// report makes the message: the problem, the text of the cluster, the remedy.
func (d diagnosis) report(c cause, text string) (Reason, string) {
	return c.reason, fmt.Sprintf("%s (%s): %s", d.fill(c.problem), quote(text), d.fill(c.remedy))
}

func (d diagnosis) fill(text string) string {
	names := []string{
		"{namespace}", d.job.Namespace, "{tunnel}", d.tunnel,
		"{claim}", wellknown.RootVolumePrefix + d.job.Labels[wellknown.LabelMountJobFileSystemID],
	}
	if d.pod != nil {
		names = append(names, "{node}", d.pod.Spec.NodeName, "{image}", shorten(imageOf(d.pod), 200))
	}
	return strings.NewReplacer(names...).Replace(text)
}

func imageOf(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == ContainerName {
			return container.Image
		}
	}
	return ""
}

// eventsOf returns the events about an object with one of the reasons, newest first.
func (d diagnosis) eventsOf(object metav1.Object, reasons ...string) []corev1.Event {
	found := slices.DeleteFunc(slices.Clone(d.events), func(event corev1.Event) bool {
		involved := event.InvolvedObject
		same := involved.UID == object.GetUID() || involved.UID == "" && involved.Name == object.GetName()
		return !same || !slices.Contains(reasons, event.Reason)
	})
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return LastSeen(b).Compare(LastSeen(a)) })
	return found
}

// LastSeen returns when an event last happened, from the fields of both event APIs.
func LastSeen(event corev1.Event) time.Time {
	times := []time.Time{event.CreationTimestamp.Time, event.LastTimestamp.Time, event.EventTime.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// maxQuote is how many bytes of another program's text a message repeats.
const maxQuote = 240

// podPath is kubelet's path of a mount, which is long and means nothing to users.
var podPath = regexp.MustCompile(`/[^\s:"]*/pods/[0-9a-f-]{36}/[^\s:"]*`)

func quote(text string) string { return shorten(podPath.ReplaceAllString(text, "…"), maxQuote) }

// shorten puts text on one line of at most so many bytes, and cuts between characters. What would control
// the terminal that shows the events, or change the order of its text, is replaced.
func shorten(text string, length int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return operations.Shorten(text, length)
}
