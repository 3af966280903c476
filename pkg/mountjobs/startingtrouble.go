package mountjobs

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Events of kubelet's that matter until the container starts.
const (
	failedMount   = "FailedMount"
	failedSandbox = "FailedCreatePodSandBox"
	failed        = "Failed" // of an image or a container
)

// startingTrouble reads the pod's events. Kubelet mounts first and makes the sandbox then, so the
// newest event tells how far it came. Only the pod says that it went on from there: the events that
// tell of progress are of type Normal, and those are not asked for.
func startingTrouble(pod *corev1.Pod, events []corev1.Event) (Reason, string) {
	if hasPodCondition(pod, corev1.PodReadyToStartContainers, corev1.ConditionTrue) {
		return "", ""
	}
	found := about(string(pod.UID), pod.Name, events, failedMount, failedSandbox)
	if len(found) == 0 {
		return "", ""
	}
	if newest := found[0]; newest.Reason == failedSandbox {
		return finding{
			reason: ContainerFailed,
			what:   "the pod's sandbox cannot be made on node " + pod.Spec.NodeName,
			next:   "look at the container runtime and the network plugin of the node",
		}.tell(newest.Message)
	}
	return mountTrouble(pod, mountMessage(found))
}

// mountMessage is the newest that has a cause, or else the newest.
func mountMessage(events []corev1.Event) string {
	message := ""
	for _, event := range events {
		if event.Reason != failedMount {
			continue
		}
		if !isSummary(event.Message) {
			return event.Message
		}
		message = cmp.Or(message, event.Message)
	}
	return message
}

// isSummary tells kubelet's "something is not mounted yet" from what the mount itself said.
func isSummary(message string) bool { return strings.Contains(message, "unmounted volumes=") }

var (
	mountOutput = regexp.MustCompile(`(?s)\nOutput: (.*)`)
	mountPort   = regexp.MustCompile(`\bport=([0-9]{1,5})\b`)
)

// mountTrouble reads what kubelet reports of a mount: its own frame, the arguments, and after
// "Output:" the words of mount(8).
func mountTrouble(pod *corev1.Pod, message string) (Reason, string) {
	node, tunnel := pod.Spec.NodeName, wellknown.LoopbackAddress
	if port := mountPort.FindStringSubmatch(message); port != nil {
		tunnel += ":" + port[1]
	}
	said := message
	if output := mountOutput.FindStringSubmatch(message); output != nil {
		said = output[1]
	}
	return firstMatch(mountFindings(node, tunnel), said).tell(said)
}

func mountFindings(node, tunnel string) []finding {
	return []finding{
		{
			[]string{"need a /sbin/mount."}, MountHelperMissing,
			"node " + node + " has no mount.nfs",
			"install nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, RHEL, Amazon Linux, SUSE's nfs-client) on every node",
		},
		{
			[]string{"unknown filesystem type", "no such device", "protocol not supported", "requested nfs version or transport protocol is not supported"}, MountHelperMissing,
			"the kernel of node " + node + " does not mount NFSv4.1",
			"load its module nfsv4 (modprobe nfsv4), or use a kernel that has it; if that is so, the server does not speak NFSv4.1",
		},
		{
			[]string{"connection refused"}, MountRefused,
			"mount refused on " + tunnel,
			"is the efs-stunnel pod on node " + node + " ready?",
		},
		{
			[]string{"access denied by server", "operation not permitted", "permission denied"}, MountDenied,
			"the file system behind " + tunnel + " denied the mount",
			"its policy, or the access point's, must let this cluster mount it, and root write to it",
		},
		{
			[]string{"no such file"}, MountPathMissing,
			"the server behind " + tunnel + " has no /",
			"is it a file system that serves NFSv4.1 from its root? An access point's root directory must exist",
		},
		{
			[]string{"connection reset", "broken pipe", "input/output error", "network is unreachable", "no route to host"}, MountFailed,
			"the tunnel " + tunnel + " broke during the mount",
			"the log of the efs-stunnel pod on node " + node + " says why: no mount target that answers, or a certificate that is not right",
		},
		{
			[]string{"timed out", "deadline exceeded", "waiting for the condition"}, MountTimedOut,
			"mount timed out on " + tunnel,
			"can node " + node + " reach the mount target's port 2049 (security group, routes), and what does its efs-stunnel pod log?",
		},
		{
			nil, MountFailed,
			"mount failed on " + tunnel,
			"see the efs-stunnel pod on node " + node + ", and the mount options of the root volume",
		},
	}
}

// containerTrouble reads why the container waits or ended, if that is because it could not be
// made. Reasons of its own ending, such as Error or OOMKilled, are no trouble of this kind.
func containerTrouble(pod *corev1.Pod, reason, message string) (Reason, string) {
	image := imageOf(pod)
	node := pod.Spec.NodeName
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		return firstMatch(imageFindings(node, image), message).tell(cmp.Or(message, reason))
	case "StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError", "CreateContainerConfigError":
		return firstMatch(containerFindings(node, image), message).tell(cmp.Or(message, reason))
	}
	return "", ""
}

func imageFindings(node, image string) []finding {
	what := fmt.Sprintf("image %s cannot be pulled on node %s", shorten(image, 200), node)
	return []finding{
		{
			[]string{"unauthorized", "authentication required", "authorization failed", "access denied", "denied:", "forbidden"}, ImagePullFailed, what,
			"give service account " + wellknown.WorkerServiceAccount + " an image pull secret for the registry, and check the image's name",
		},
		{
			[]string{"not found", "manifest unknown", "name unknown", "invalid reference", "couldn't parse"}, ImagePullFailed, what,
			"--worker-image (WORKER_IMAGE) of the manager must name the project's own image, with a tag that exists",
		},
		{
			[]string{"no match for platform"}, ImagePullFailed, what,
			"the image is not built for the node's architecture: set --worker-image (WORKER_IMAGE) to one that is",
		},
		{
			nil, ImagePullFailed, what,
			"can the node reach the registry, and does --worker-image (WORKER_IMAGE) name the right one?",
		},
	}
}

func containerFindings(node, image string) []finding {
	image = shorten(image, 200)
	return []finding{
		{
			[]string{"exec format error"}, ProgramMissing,
			"image " + image + " is for another architecture than node " + node,
			"set --worker-image (WORKER_IMAGE) to the project's own image, which is built for several",
		},
		{
			[]string{"executable file not found", "stat " + Program, "exec: \"" + Program, "no such file"}, ProgramMissing,
			"image " + image + " has no mountjob",
			"set --worker-image (WORKER_IMAGE) to the project's own image, of the manager's version",
		},
		{
			nil, ContainerFailed,
			"the container cannot be made on node " + node,
			"look at kubelet and the container runtime of the node",
		},
	}
}

func imageOf(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == ContainerName {
			return container.Image
		}
	}
	return ""
}

// withPullError: while kubelets before 1.32 back off, only an event has the cause.
func withPullError(pod *corev1.Pod, message string, events []corev1.Event) string {
	if !strings.HasPrefix(message, "Back-off pulling image") || strings.Contains(message, ": ") {
		return message
	}
	for _, event := range about(string(pod.UID), pod.Name, events, failed) {
		if strings.HasPrefix(event.Message, "Failed to pull image") {
			return event.Message
		}
	}
	return message
}
