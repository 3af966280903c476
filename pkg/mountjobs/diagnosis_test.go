package mountjobs_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// mountEvent is kubelet's event with the output of mount(8).
func mountEvent(output string) corev1.Event {
	return podEvent("FailedMount", `MountVolume.SetUp failed for volume "efs-stunnel-fs-34a3p3" : mount failed: exit status 32
Mounting command: mount
Mounting arguments: -t nfs -o hard,lookupcache=none,nfsvers=4.1,noresvport,port=20490,retrans=2,rsize=1048576 127.0.0.1:/ /var/lib/kubelet/pods/5d0f8a7c-1f0a-4b3e-9c55-0d6b4f7a1e22/volumes/kubernetes.io~nfs/efs-stunnel-fs-34a3p3
Output: `+output+"\n")
}

const onPath = " for 127.0.0.1:/ on /var/lib/kubelet/pods/5d0f8a7c-1f0a-4b3e-9c55-0d6b4f7a1e22/volumes/kubernetes.io~nfs/efs-stunnel-fs-34a3p3"

// summary is kubelet's message for every volume that is not mounted yet.
const summary = `Unable to attach or mount volumes: unmounted volumes=[efs], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`

func TestDiagnoseMount(t *testing.T) {
	creating := waiting("ContainerCreating", "")
	hasSandbox := func(pod *corev1.Pod) {
		creating(pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	}
	tests := map[string]diagnosisTest{
		"nothing yet":                  {creating, nil, "", nil},
		"kubelet has not seen the pod": {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }, nil, "", nil},
		"refused":                      {creating, events(mountEvent("mount.nfs: Connection refused" + onPath)), mountjobs.MountRefused, texts("mount refused on 127.0.0.1:20490", "mount.nfs: Connection refused for 127.0.0.1:/ on …", "is the efs-stunnel pod on node n1 ready?")},
		"its claim is not bound": {
			creating, events(mountEvent("unmounted volumes=[root], unattached volumes=[], failed to process volumes=[root]: error processing PVC efs-stunnel/efs-stunnel-fs-34a3p3: PVC is not bound")),
			mountjobs.RootClaimUnavailable, texts("root claim efs-stunnel-fs-34a3p3 is not bound"),
		},
		"timed out":                         {creating, events(mountEvent("mount.nfs: Connection timed out")), mountjobs.MountTimedOut, texts("mount timed out on 127.0.0.1:20490", "port 2049")},
		"denied":                            {creating, events(mountEvent("mount.nfs: access denied by server while mounting 127.0.0.1:/")), mountjobs.MountDenied, texts("denied", "its policy")},
		"no helper":                         {creating, events(mountEvent("mount: /var/lib/kubelet/pods/x: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.")), mountjobs.MountHelperMissing, texts("need a /sbin/mount.<type> helper", "install nfs-common", "nfs-utils")},
		"no NFS in the kernel":              {creating, events(mountEvent("mount.nfs: No such device")), mountjobs.MountHelperMissing, texts("modprobe nfsv4")},
		"no such directory":                 {creating, events(mountEvent("mount.nfs: mounting 127.0.0.1:/ failed, reason given by server: No such file or directory")), mountjobs.MountPathMissing, texts("No such file or directory", "NFSv4.1")},
		"the tunnel breaks":                 {creating, events(mountEvent("mount.nfs: Connection reset by peer" + onPath)), mountjobs.MountFailed, texts("broke during the mount", "certificate")},
		"unknown output":                    {creating, events(mountEvent("mount.nfs: an incorrect mount option was specified")), mountjobs.MountFailed, texts("mount failed on 127.0.0.1:20490", "incorrect mount option", "mount options of the root volume")},
		"only the summary":                  {creating, events(podEvent("FailedMount", summary)), mountjobs.MountTimedOut, texts("mount timed out on 127.0.0.1 (", "context deadline exceeded")},
		"a summary hides no cause":          {creating, events(mountEvent("mount.nfs: Connection refused"), later(podEvent("FailedMount", summary))), mountjobs.MountRefused, texts("refused")},
		"the newest cause counts":           {creating, events(mountEvent("mount.nfs: Connection refused"), later(mountEvent("mount.nfs: access denied by server while mounting 127.0.0.1:/"))), mountjobs.MountDenied, nil},
		"over when kubelet goes on":         {hasSandbox, events(mountEvent("mount.nfs: Connection refused"), podEvent("FailedCreatePodSandBox", "x")), "", nil},
		"over when it runs":                 {running, events(mountEvent("mount.nfs: Connection refused")), "", nil},
		"of another pod":                    {creating, events(event("other", "FailedMount", "x", 0)), "", nil},
		"no sandbox":                        {creating, events(podEvent("FailedCreatePodSandBox", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "1f": plugin type="calico" failed (add)`)), mountjobs.ContainerFailed, texts("sandbox", "calico", "network plugin")},
		"mounted since, but no sandbox":     {creating, events(mountEvent("mount.nfs: Connection refused"), later(podEvent("FailedCreatePodSandBox", "no address is left"))), mountjobs.ContainerFailed, texts("no address is left")},
		"mounted once, and then no more":    {creating, events(podEvent("FailedCreatePodSandBox", "x"), later(mountEvent("mount.nfs: Connection refused"))), mountjobs.MountRefused, nil},
		"the summary came last":             {creating, events(mountEvent("mount.nfs: Connection refused"), later(podEvent("FailedCreatePodSandBox", "x")), later(later(podEvent("FailedMount", summary)))), mountjobs.MountRefused, nil},
		"a reason that does not concern us": {creating, events(podEvent("Unhealthy", "x")), "", nil},
	}
	checkDiagnoses(t, tests)
}

func TestDiagnoseContainer(t *testing.T) {
	notFound := `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example.com/efs-stunnel:1.0": failed to resolve reference "registry.example.com/efs-stunnel:1.0": registry.example.com/efs-stunnel:1.0: not found`
	noProgram := `failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/usr/local/bin/mountjob": stat /usr/local/bin/mountjob: no such file or directory`
	tests := map[string]diagnosisTest{
		"no such image":               {waiting("ErrImagePull", notFound), nil, mountjobs.ImagePullFailed, texts("cannot be pulled on node n1", "failed to pull and unpack", "WORKER_IMAGE")},
		"backing off, with the cause": {waiting("ImagePullBackOff", `Back-off pulling image "`+image+`": ErrImagePull: `+notFound), nil, mountjobs.ImagePullFailed, texts("WORKER_IMAGE")},
		"backing off, cause in event": {waiting("ImagePullBackOff", `Back-off pulling image "`+strings.Split(image, ":")[0]+`"`), events(podEvent("Failed", "Error: ImagePullBackOff"), podEvent("Failed", `Failed to pull image "x": unauthorized: authentication required`)), mountjobs.ImagePullFailed, texts("unauthorized", "pull secret")},
		"backing off, no cause":       {waiting("ImagePullBackOff", ""), nil, mountjobs.ImagePullFailed, texts("(ImagePullBackOff)", "reach the registry")},
		"registry does not answer":    {waiting("ErrImagePull", `failed to do request: Head "https://registry.example.com/v2/": dial tcp: lookup registry.example.com: i/o timeout`), nil, mountjobs.ImagePullFailed, texts("reach the registry")},
		"not this architecture":       {waiting("ErrImagePull", `no match for platform in manifest: not known`), nil, mountjobs.ImagePullFailed, texts("architecture")},
		"never pull":                  {waiting("ErrImageNeverPull", `Container image "x" is not present with pull policy of Never`), nil, mountjobs.ImagePullFailed, nil},
		"no mountjob, containerd":     {ended(128, "StartError", noProgram), nil, mountjobs.ProgramMissing, texts("has no mountjob", "WORKER_IMAGE")},
		"no mountjob, CRI-O":          {waiting("CreateContainerError", `container create failed: executable file `+"`/usr/local/bin/mountjob`"+` not found in $PATH: No such file or directory`), nil, mountjobs.ProgramMissing, texts("has no mountjob")},
		"wrong binary":                {ended(128, "StartError", `exec /usr/local/bin/mountjob: exec format error`), nil, mountjobs.ProgramMissing, texts("another architecture")},
		"config":                      {waiting("CreateContainerConfigError", `container has runAsNonRoot and image will run as root`), nil, mountjobs.ContainerFailed, texts("runAsNonRoot")},
		"its own failure is not this": {ended(1, "Error", "{}"), nil, "", nil},
		"nor is memory":               {ended(137, "OOMKilled", ""), nil, "", nil},
	}
	checkDiagnoses(t, tests)
}

func TestDiagnoseScheduling(t *testing.T) {
	unscheduled := func(message string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.NodeName = ""
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
			}}}
		}
	}
	const preemption = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
	tests := map[string]diagnosisTest{
		"not looked at yet":      {func(p *corev1.Pod) { p.Spec.NodeName = ""; p.Status = corev1.PodStatus{Phase: corev1.PodPending} }, nil, "", nil},
		"only the event is here": {func(p *corev1.Pod) { p.Spec.NodeName = ""; p.Status = corev1.PodStatus{} }, events(podEvent("FailedScheduling", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.")), mountjobs.NoNodeAgent, texts("DaemonSet efs-stunnel")},
		"no agent":               {unscheduled("0/3 nodes are available: 3 node(s) didn't match pod affinity rules." + preemption), nil, mountjobs.NoNodeAgent, texts("no node with an efs-stunnel pod", "3 node(s) didn't match pod affinity rules.)")},
		"taints":                 {unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s)." + preemption), nil, mountjobs.Unschedulable, texts("taint")},
		"taints, older message":  {unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: gpu}."), nil, mountjobs.Unschedulable, texts("dedicated: gpu", "--worker-tolerations")},
		"no room":                {unscheduled("0/3 nodes are available: 3 Insufficient memory." + preemption), nil, mountjobs.Unschedulable, texts("room", "32Mi")},
		"each node its own":      {unscheduled("0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) didn't match pod affinity rules."), nil, mountjobs.NoNodeAgent, texts("DaemonSet", "; or", "taint", "room")},
		"the node that failed":   {unscheduled("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable."), nil, mountjobs.Unschedulable, texts("the last try failed", "uncordon")},
		"no root claim":          {unscheduled(`0/3 nodes are available: persistentvolumeclaim "efs-stunnel-fs-34a3p3" not found. not found`), nil, mountjobs.RootClaimUnavailable, texts("root claim efs-stunnel-fs-34a3p3 is missing", "manager makes it again")},
		"root claim is leaving":  {unscheduled(`0/3 nodes are available: persistentvolumeclaim "efs-stunnel-fs-34a3p3" is being deleted.`), nil, mountjobs.RootClaimUnavailable, texts("is being deleted")},
		"root claim is not bound": {unscheduled("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims." + preemption), nil,
			mountjobs.RootClaimUnavailable, texts("not bound", "kubectl describe pv efs-stunnel-fs-34a3p3")},
		"root volume is gone": {unscheduled(`0/3 nodes are available: 3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).`), nil, mountjobs.RootClaimUnavailable, nil},
		"unknown message":     {unscheduled("0/3 nodes are available: 3 node(s) are asleep."), nil, mountjobs.Unschedulable, texts("3 node(s) are asleep", "what the scheduler names")},
	}
	checkDiagnoses(t, tests)
}

func TestDiagnoseCreation(t *testing.T) {
	refused := func(why string) []corev1.Event {
		return events(event("job-uid", "FailedCreate", `Error creating: pods "efs-mount-fs-34a3p3-00007-" is forbidden: `+why, 0))
	}
	tests := map[string]diagnosisTest{
		"nothing yet":          {nil, nil, "", nil},
		"quota":                {nil, refused("exceeded quota: small, requested: pods=1, used: pods=10, limited: pods=10"), mountjobs.QuotaExceeded, texts("quota of namespace efs-stunnel", "(exceeded quota: small, requested: pods=1, used: pods=10, limited: pods=10)", "raise it")},
		"quota wants more":     {nil, refused("failed quota: small: must specify limits.ephemeral-storage for: mountjob"), mountjobs.QuotaExceeded, nil},
		"pod security":         {nil, refused(`violates PodSecurity "restricted:latest": unrestricted capabilities (container "mountjob" must not include "CHOWN", "DAC_OVERRIDE", "FOWNER" in securityContext.capabilities.add)`), mountjobs.AdmissionRefused, texts("violates PodSecurity", "pod-security.kubernetes.io/enforce=privileged")},
		"security constraints": {nil, refused(`unable to validate against any security context constraint: [provider "restricted-v2": Forbidden: not usable by user or serviceaccount]`), mountjobs.AdmissionRefused, texts("efs-worker", "OpenShift overlay")},
		"no service account":   {nil, refused(`error looking up service account efs-stunnel/efs-worker: serviceaccount "efs-worker" not found`), mountjobs.AdmissionRefused, texts("apply the manifests")},
		"no priority class":    {nil, refused("no PriorityClass with name high was found"), mountjobs.AdmissionRefused, texts("priority class", "--worker-priority-class")},
		"priority without quota": {nil, refused("insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]"), mountjobs.AdmissionRefused,
			texts("namespace efs-stunnel needs a ResourceQuota", "--worker-priority-class")},
		"limit range": {nil, refused("maximum memory usage per Container is 128Mi, but limit is 256Mi"), mountjobs.AdmissionRefused, texts("LimitRange")},
		"a policy": {nil, events(event("job-uid", "FailedCreate", `Error creating: admission webhook "validate.kyverno.svc-fail" denied the request: root is not allowed`, 0)),
			mountjobs.AdmissionRefused, texts("(admission webhook", "exempt namespace efs-stunnel")},
		"unknown message":        {nil, refused("because"), mountjobs.AdmissionRefused, texts("(because)")},
		"of another Job":         {nil, events(event("other", "FailedCreate", "x", 0)), "", nil},
		"over once there is one": {running, refused("exceeded quota: small"), "", nil},
	}
	checkDiagnoses(t, tests)
}

type diagnosisTest struct {
	pod    func(*corev1.Pod) // nil is no pod
	events []corev1.Event
	want   mountjobs.Reason
	parts  []string // of the message
}

func checkDiagnoses(t *testing.T, tests map[string]diagnosisTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, many(1))
			var pod *corev1.Pod
			if tt.pod != nil {
				pod = newPod(job, tt.pod)
			}
			reason, message := mountjobs.Diagnose(job, pod, tt.events)
			if reason != tt.want || (message == "") != (reason == "") {
				t.Errorf("got %q: %s", reason, message)
			}
			for _, part := range tt.parts {
				if !strings.Contains(message, part) {
					t.Errorf("no %q in: %s", part, message)
				}
			}
			if strings.Contains(message, "\n") || len(message) > 1024 {
				t.Errorf("too much for an event: %q", message)
			}
		})
	}
}

func TestFinishedJobHasNoDiagnosis(t *testing.T) {
	job := newJob(t, many(1), condition(batchv1.JobFailed, "DeadlineExceeded", ""))
	late := event("job-uid", "FailedCreate", "exceeded quota", 0)
	if reason, message := mountjobs.Diagnose(job, nil, events(late)); reason != "" {
		t.Errorf("got %q: %s", reason, message)
	}
}

func TestDiagnoseReadsEventsOfBothAPIs(t *testing.T) {
	job := newJob(t, many(1))
	old, recent := mountEvent("mount.nfs: Connection refused"), mountEvent("mount.nfs: access denied by server")
	recent.LastTimestamp.Reset()
	recent.EventTime.Time = created
	recent.Series = &corev1.EventSeries{Count: 2}
	recent.Series.LastObservedTime.Time = created.Add(time.Hour)
	if reason, _ := mountjobs.Diagnose(job, newPod(job, waiting("ContainerCreating", "")), events(old, recent)); reason != mountjobs.MountDenied {
		t.Errorf("got %q, want that of the newer event", reason)
	}
}

func events(all ...corev1.Event) []corev1.Event { return all }

func texts(parts ...string) []string { return parts }

func later(event corev1.Event) corev1.Event {
	event.LastTimestamp.Time = event.LastTimestamp.Add(time.Minute)
	return event
}
