package mountjobs

import (
	"cmp"
	"regexp"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// schedulingTrouble reads the scheduler's words on the pod; the event is there a moment earlier.
func schedulingTrouble(job *batchv1.Job, pod *corev1.Pod, events []corev1.Event) (Reason, string) {
	said := ""
	if found := about(string(pod.UID), pod.Name, events, "FailedScheduling"); len(found) > 0 {
		said = found[0].Message
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			said = cmp.Or(condition.Message, said)
		}
	}
	if said == "" {
		return "", ""
	}
	return unschedulable(job, said)
}

// unschedulable lists a next step for each of the reasons: the nodes may have different ones,
// and mending any helps.
func unschedulable(job *batchv1.Job, said string) (Reason, string) {
	said, _, _ = strings.Cut(said, " preemption:") // says the same again
	all := schedulingFindings(job)
	last := len(all) - 1
	told := all[last]
	var steps []string
	for _, f := range all[:last] {
		if !f.matches(said) {
			continue
		}
		if len(steps) == 0 {
			told = f
		}
		steps = append(steps, f.next)
	}
	if len(steps) > 0 {
		told.next = strings.Join(steps, "; or ")
	}
	return told.tell(said)
}

func schedulingFindings(job *batchv1.Job) []finding {
	claim := wellknown.RootVolumePrefix + job.Labels[wellknown.LabelMountJobFileSystemID]
	noNode := "no node takes the mount Job"
	return []finding{
		{
			[]string{"persistentvolumeclaim \"" + claim + "\" not found", "persistentvolumeclaim \"" + claim + "\" is being deleted"}, RootClaimUnavailable,
			"the root claim " + claim + " is missing",
			"the manager makes it again by itself; if it stays away, see the manager's log",
		},
		{
			[]string{"unbound immediate persistentvolumeclaims", "non-existent persistentvolume", "non-existent pv"}, RootClaimUnavailable,
			"the root claim " + claim + " is not bound",
			"the manager mends it by itself; if it does not, see the manager's log and kubectl describe pv " + claim,
		},
		{
			[]string{"match pod affinity rules"}, NoNodeAgent,
			"no node with an efs-stunnel pod takes the mount Job",
			"DaemonSet " + wellknown.NodeDaemonSet + " must have a running pod on a node that takes others",
		},
		{
			[]string{"untolerated taint", "taints that the pod didn't tolerate"}, Unschedulable, noNode,
			"take the taint off a node with an efs-stunnel pod, or let mount Jobs tolerate it",
		},
		{
			[]string{"insufficient ", "too many pods"}, Unschedulable, noNode,
			"free or add room on a node: the Job asks for 10m of CPU and 32Mi of memory",
		},
		{
			[]string{"node affinity/selector", "node affinity"}, Unschedulable, noNode,
			"the node where the last try failed is left out of this one: mend it, or the others",
		},
		{
			[]string{"were unschedulable"}, Unschedulable, noNode,
			"uncordon a node",
		},
		{nil, Unschedulable, noNode, "mend what the scheduler names"},
	}
}

var podForbidden = regexp.MustCompile(`^(Error creating: )?(pods "[^"]*" is forbidden: )?`)

// creationTrouble reads why the Job controller could not make the pod.
func creationTrouble(job *batchv1.Job, events []corev1.Event) (Reason, string) {
	found := about(string(job.UID), job.Name, events, "FailedCreate")
	if len(found) == 0 {
		return "", ""
	}
	said := found[0].Message
	said = said[len(podForbidden.FindString(said)):]
	return firstMatch(creationFindings(job.Namespace), said).tell(said)
}

func creationFindings(namespace string) []finding {
	refused := "the cluster refused the mount Job's pod"
	return []finding{
		{
			[]string{"insufficient quota to match these scopes"}, AdmissionRefused, refused,
			"namespace " + namespace + " needs a ResourceQuota for pods of this priority, as the manifests have it: apply them, or let the manager's --worker-priority-class name another",
		},
		{
			[]string{"exceeded quota", "failed quota", "insufficient quota"}, QuotaExceeded,
			"the quota of namespace " + namespace + " is used up",
			"raise it: a mount Job's pod needs 10m of CPU and 32Mi of memory, with limits of 1 and 256Mi",
		},
		{
			[]string{"violates podsecurity"}, AdmissionRefused, refused,
			"label namespace " + namespace + " with pod-security.kubernetes.io/enforce=privileged: mount Jobs are of level baseline, the node agent is not",
		},
		{
			[]string{"security context constraint"}, AdmissionRefused, refused,
			"let service account " + wellknown.WorkerServiceAccount + " use a SecurityContextConstraints with uid 0, CHOWN, DAC_OVERRIDE and FOWNER, as the OpenShift overlay does",
		},
		{
			[]string{"service account", "serviceaccount"}, AdmissionRefused, refused,
			"make service account " + wellknown.WorkerServiceAccount + " in namespace " + namespace + " again: apply the manifests",
		},
		{
			[]string{"priorityclass"}, AdmissionRefused, refused,
			"make the priority class, or let the manager's --worker-priority-class name another",
		},
		{
			[]string{"per container is", "per pod is", "limitrange"}, AdmissionRefused, refused,
			"the LimitRange of namespace " + namespace + " must leave room for requests of 10m and 32Mi and limits of 1 and 256Mi",
		},
		{
			[]string{"admission webhook", "failed calling webhook", "validatingadmissionpolicy"}, AdmissionRefused, refused,
			"have its owner exempt namespace " + namespace + ", or mend the webhook",
		},
		{
			nil, AdmissionRefused, refused,
			"let the policy that it names admit pods of service account " + wellknown.WorkerServiceAccount + " in namespace " + namespace,
		},
	}
}
