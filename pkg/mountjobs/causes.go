package mountjobs

import "gnuthought.com/efs-stunnel/pkg/api/wellknown"

// Reason is a stable identifier of what keeps a Job's pod from starting.
type Reason string

// Reasons why a pod does not start.
const (
	MountRefused         Reason = "MountRefused"         // no process listens on the tunnel's port
	MountTimedOut        Reason = "MountTimedOut"        // the tunnel accepts, the file system does not answer
	MountDenied          Reason = "MountDenied"          // the file system's policy denies the mount
	MountHelperMissing   Reason = "MountHelperMissing"   // the node has no mount.nfs, or no NFS in its kernel
	MountPathMissing     Reason = "MountPathMissing"     // the server has no such directory
	MountFailed          Reason = "MountFailed"          // any other problem of the mount
	ImagePullFailed      Reason = "ImagePullFailed"      // the image cannot be pulled
	ProgramMissing       Reason = "ProgramMissing"       // the image does not have mountjob
	ContainerFailed      Reason = "ContainerFailed"      // the node cannot create the container
	NoNodeAgent          Reason = "NoNodeAgent"          // no node with an agent fits the pod
	Unschedulable        Reason = "Unschedulable"        // no node fits the pod
	RootClaimUnavailable Reason = "RootClaimUnavailable" // the root claim is missing or not bound
	QuotaExceeded        Reason = "QuotaExceeded"        // the namespace's quota is used up
	AdmissionRefused     Reason = "AdmissionRefused"     // the cluster's policy forbids the pod
)

// cause is one of the problems that a text of the cluster can be about. A text matches if it contains
// one of the patterns, which are in lower case, with | between. Names in braces are filled in by
// diagnosis. In each list, the first match counts, and the last one matches every text.
type cause struct {
	reason   Reason
	patterns string
	problem  string
	remedy   string
}

var mountCauses = []cause{
	{MountHelperMissing, "need a /sbin/mount.", "node {node} has no mount.nfs",
		"install nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, RHEL, Amazon Linux, SUSE's nfs-client) on every node"},
	{MountHelperMissing, "unknown filesystem type|no such device|protocol not supported|requested nfs version or transport protocol is not supported",
		"the kernel of node {node} does not mount NFSv4.1",
		"load its module nfsv4 (modprobe nfsv4), or use a kernel that has it; if that is so, the server does not speak NFSv4.1"},
	{MountRefused, "connection refused", "mount refused on {tunnel}",
		"is the efs-stunnel pod on node {node} ready?"},
	{MountDenied, "access denied by server|operation not permitted|permission denied",
		"the file system behind {tunnel} denied the mount",
		"its policy, or the access point's, must let this cluster mount it, and root write to it"},
	{MountPathMissing, "no such file", "the server behind {tunnel} has no /",
		"is it a file system that serves NFSv4.1 from its root? An access point's root directory must exist"},
	{MountFailed, "connection reset|broken pipe|input/output error|network is unreachable|no route to host",
		"the tunnel {tunnel} broke during the mount",
		"the log of the efs-stunnel pod on node {node} says why: no mount target that answers, or a certificate that is not right"},
	{RootClaimUnavailable, "pvc is not bound", "root claim {claim} is not bound",
		"the manager makes it again"},
	{MountTimedOut, "timed out|deadline exceeded|waiting for the condition", "mount timed out on {tunnel}",
		"can node {node} reach the mount target's port 2049 (security group, routes), and what does its efs-stunnel pod log?"},
	{MountFailed, "", "mount failed on {tunnel}",
		"see the efs-stunnel pod on node {node}, and the mount options of the root volume"},
}

var sandboxCauses = []cause{
	{ContainerFailed, "", "the pod's sandbox cannot be made on node {node}",
		"look at the container runtime and the network plugin of the node"},
}

const cannotPull = "image {image} cannot be pulled on node {node}"

var imageCauses = []cause{
	{ImagePullFailed, "unauthorized|authentication required|authorization failed|access denied|denied:|forbidden", cannotPull,
		"give service account " + wellknown.WorkerServiceAccount + " an image pull secret for the registry, and check the image's name"},
	{ImagePullFailed, "not found|manifest unknown|name unknown|invalid reference|couldn't parse", cannotPull,
		"--worker-image (WORKER_IMAGE) of the manager must name the project's own image, with a tag that exists"},
	{ImagePullFailed, "no match for platform", cannotPull,
		"the image is not built for the node's architecture: set --worker-image (WORKER_IMAGE) to one that is"},
	{ImagePullFailed, "", cannotPull,
		"can the node reach the registry, and does --worker-image (WORKER_IMAGE) name the right one?"},
}

var containerCauses = []cause{
	{ProgramMissing, "exec format error", "image {image} is for another architecture than node {node}",
		"set --worker-image (WORKER_IMAGE) to the project's own image, which is built for several"},
	{ProgramMissing, "executable file not found|stat " + Program + "|exec: \"" + Program + "|no such file", "image {image} has no mountjob",
		"set --worker-image (WORKER_IMAGE) to the project's own image, of the manager's version"},
	{ContainerFailed, "", "the container cannot be made on node {node}",
		"look at kubelet and the container runtime of the node"},
}

const noNode = "no node takes the mount Job"

var schedulingCauses = []cause{
	{RootClaimUnavailable, `persistentvolumeclaim "{claim}" not found|persistentvolumeclaim "{claim}" is being deleted`,
		"the root claim {claim} is missing",
		"the manager makes it again by itself; if it stays away, see the manager's log"},
	{RootClaimUnavailable, "unbound immediate persistentvolumeclaims|non-existent persistentvolume|non-existent pv",
		"the root claim {claim} is not bound",
		"the manager mends it by itself; if it does not, see the manager's log and kubectl describe pv {claim}"},
	{NoNodeAgent, "match pod affinity rules", "no node with an efs-stunnel pod takes the mount Job",
		"DaemonSet " + wellknown.NodeDaemonSet + " must have a running pod on a node that takes others"},
	{Unschedulable, "untolerated taint|taints that the pod didn't tolerate", noNode,
		"take the taint off a node with an efs-stunnel pod, or add it to the manager's --worker-tolerations"},
	{Unschedulable, "insufficient |too many pods", noNode,
		"free or add room on a node: the Job asks for 10m of CPU and 32Mi of memory"},
	{Unschedulable, "node affinity", noNode,
		"the node where the last try failed is left out of this one, and so are nodes without the labels of the manager's --worker-node-selector: mend it, or the others"},
	{Unschedulable, "were unschedulable", noNode, "uncordon a node"},
	{Unschedulable, "", noNode, "mend what the scheduler names"},
}

const refused = "the cluster refused the mount Job's pod"

var creationCauses = []cause{
	{AdmissionRefused, "insufficient quota to match these scopes", refused,
		"namespace {namespace} needs a ResourceQuota for pods of this priority, as the manifests have it: apply them, or let the manager's --worker-priority-class name another"},
	{QuotaExceeded, "exceeded quota|failed quota|insufficient quota", "the quota of namespace {namespace} is used up",
		"raise it: a mount Job's pod needs 10m of CPU and 32Mi of memory, with limits of 1 and 256Mi"},
	{AdmissionRefused, "violates podsecurity", refused,
		"label namespace {namespace} with pod-security.kubernetes.io/enforce=privileged: mount Jobs are of level baseline, the node agent is not"},
	{AdmissionRefused, "security context constraint", refused,
		"let service account " + wellknown.WorkerServiceAccount + " use a SecurityContextConstraints with uid 0, CHOWN, DAC_OVERRIDE and FOWNER, as the OpenShift overlay does"},
	{AdmissionRefused, "service account|serviceaccount", refused,
		"make service account " + wellknown.WorkerServiceAccount + " in namespace {namespace} again: apply the manifests"},
	{AdmissionRefused, "priorityclass", refused,
		"make the priority class, or let the manager's --worker-priority-class name another"},
	{AdmissionRefused, "per container is|per pod is|limitrange", refused,
		"the LimitRange of namespace {namespace} must leave room for requests of 10m and 32Mi and limits of 1 and 256Mi"},
	{AdmissionRefused, "admission webhook|failed calling webhook|validatingadmissionpolicy", refused,
		"have its owner exempt namespace {namespace}, or mend the webhook"},
	{AdmissionRefused, "", refused,
		"let the policy that it names admit pods of service account " + wellknown.WorkerServiceAccount + " in namespace {namespace}"},
}
