//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// trouble keeps a pod from starting on a file system of its own.
type trouble struct {
	fate   kubelet.Fate
	edit   func(*drill, *corev1.Pod) // does more to the pod than a fate can; nil does nothing
	words  []string                  // the cluster's own, and the next step
	over   chan struct{}
	claims []*corev1.PersistentVolumeClaim // in the Job, and behind it
}

func troubles() map[string]*trouble {
	refused := "mount.nfs: Connection refused for 127.0.0.1:/ on /var/lib/kubelet/pods/2f0a7f5e-6a9e-4f5c-8f5e-0a1b2c3d4e5f/volumes/kubernetes.io~nfs/efs"
	return map[string]*trouble{
		"no tunnel": {fate: kubelet.Fate{FailedMount: refused},
			words: []string{"mount refused on 127.0.0.1:", "Connection refused for 127.0.0.1:/", "is the efs-stunnel pod on node"}},
		"no mount helper": {fate: kubelet.Fate{FailedMount: "mount: /var/lib/kubelet: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program."},
			words: []string{"has no mount.nfs", "helper program", "install nfs-common"}},
		"no NFS in the kernel": {fate: kubelet.Fate{FailedMount: "mount.nfs: No such device"},
			words: []string{"No such device", "modprobe nfsv4"}},
		"no right": {fate: kubelet.Fate{FailedMount: "mount.nfs: access denied by server while mounting 127.0.0.1:/"},
			words: []string{"access denied by server", "its policy"}},
		"no way": {fate: kubelet.Fate{FailedMount: "mount.nfs: Connection timed out"},
			words: []string{"Connection timed out", "port 2049 (security group, routes)"}},
		"no image": {fate: kubelet.Fate{ImagePull: "rpc error: code = NotFound desc = failed to pull and unpack image: not found"},
			words: []string{"registry.example.com/efs-stunnel:1.0", "code = NotFound"}},
		"no room": {fate: kubelet.Fate{Unschedulable: "0/2 nodes are available: 2 Insufficient cpu."},
			words: []string{"2 Insufficient cpu", "free or add room on a node"}},
		"no program": {fate: kubelet.Fate{ImagePull: "held"}, edit: (*drill).missProgram,
			words: []string{"stat /usr/local/bin/mountjob: no such file or directory", "--worker-image"}},
	}
}

// missProgram is what kubelet writes when the image is another one, with CRI-O.
func (d *drill) missProgram(pod *corev1.Pod) {
	d.Helper()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: mountjobs.ContainerName, Image: pod.Spec.Containers[0].Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  "CreateContainerError",
			Message: `container create failed: executable file "/usr/local/bin/mountjob" not found: stat /usr/local/bin/mountjob: no such file or directory`,
		}},
	}}
	_, err := d.Client.CoreV1().Pods(d.Namespace).UpdateStatus(d.Context(), pod, metav1.UpdateOptions{})
	d.check(err)
}

// TestJobsTellWhatKeepsThemFromStarting wants it on every claim that waits while it happens,
// in the Job or behind it, and everything well when it is over.
func TestJobsTellWhatKeepsThemFromStarting(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	all := troubles()
	fileSystems := map[string]string{}
	for name := range all {
		fileSystems[name] = d.NewFileSystem()
	}
	d.start(nil)
	for name, tr := range all {
		d.begin(fileSystems[name], tr)
	}
	for name, tr := range all {
		for _, claim := range tr.claims {
			d.awaitEvent(claim, wellknown.EventProvisioningFailed, append(tr.words, "Job efs-mount-"+fileSystems[name]+"-00001")...)
		}
	}
	for _, tr := range all {
		close(tr.over)
	}
	for _, tr := range all {
		d.awaitBound(tr.claims...)
	}
}

// begin has one claim's Job meet the trouble, and another claim come after it.
func (d *drill) begin(fileSystem string, tr *trouble) {
	d.Helper()
	tr.over = make(chan struct{})
	tr.fate.Until = tr.over
	d.Kubelet.PlayNext(tr.fate)
	tr.claims = append(tr.claims, d.claimOn(fileSystem, fileSystem+"-in"))
	pod := d.awaitTroubled(fileSystem)
	if tr.edit != nil {
		tr.edit(d, pod)
	}
	tr.claims = append(tr.claims, d.claimOn(fileSystem, fileSystem+"-behind"))
}

// awaitTroubled waits until the pod of a file system's Job has met its fate.
func (d *drill) awaitTroubled(fileSystem string) *corev1.Pod {
	d.Helper()
	var found *corev1.Pod
	d.Eventually("a pod on "+fileSystem+" is in trouble", func(ctx context.Context) error {
		jobs := d.jobs(ctx, mountjobs.Mount, fileSystem)
		if len(jobs) == 0 {
			return errors.New("there is no Job")
		}
		job := jobs[len(jobs)-1]
		events, err := d.Client.CoreV1().Events(d.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if found, err = d.podOf(ctx, job.Name); err != nil {
			return err
		}
		if reason, _ := mountjobs.Diagnose(&job, found, events.Items); reason == "" {
			return fmt.Errorf("the pod of %s is in none", job.Name)
		}
		return nil
	})
	return found
}

// podOf is a Job's pod.
func (d *drill) podOf(ctx context.Context, job string) (*corev1.Pod, error) {
	pods, err := d.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("Job %s has %d pods", job, len(pods.Items))
	}
	return &pods.Items[0], nil
}

// TestJobsTellWhatKeepsACleanupFromStarting wants it on the volume.
func TestJobsTellWhatKeepsACleanupFromStarting(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil)
	claim := d.claim("data")
	object := d.awaitBound(claim)
	over := make(chan struct{})
	d.Kubelet.PlayNext(kubelet.Fate{FailedMount: "mount.nfs: Connection refused for 127.0.0.1:/ on /mnt", Until: over})
	d.deleteClaim(claim)
	d.awaitEvent(object, wellknown.EventVolumeFailedDelete, "mount refused on 127.0.0.1:", "is the efs-stunnel pod on node")
	close(over)
	d.awaitAllGone(claim)
}

// TestJobsWhosePodsAreRefused has the cluster itself say no, and then yes.
func TestJobsWhosePodsAreRefused(t *testing.T) {
	tests := map[string]struct {
		refuse func(*drill) (admit func())
		words  []string
		edit   func(*drill, *loops.Options)
	}{
		"no priority class":  {(*drill).missPriorityClass, []string{"no PriorityClass with name", "--worker-priority-class"}, (*drill).prioritize},
		"no agent":           {(*drill).removeAgents, []string{"no node with an efs-stunnel pod takes the mount Job", "match pod affinity rules"}, nil},
		"quota of pods":      {func(d *drill) func() { return d.quota(corev1.ResourcePods, 2) }, []string{"quota", "exceeded quota: full", "raise it"}, nil},
		"quota of Jobs":      {func(d *drill) func() { return d.quota("count/jobs.batch", 0) }, []string{"no mount Job can begin", "exceeded quota: full"}, nil},
		"security level":     {(*drill).restrict, []string{`violates PodSecurity "restricted:latest"`, "pod-security.kubernetes.io/enforce=privileged"}, nil},
		"no service account": {(*drill).removeServiceAccount, []string{"efs-worker", "apply the manifests"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			admit := tt.refuse(d)
			d.start(nil, func(o *loops.Options) {
				if tt.edit != nil {
					tt.edit(d, o)
				}
			})
			first := d.claim("first")
			d.awaitEvent(first, wellknown.EventProvisioningFailed, tt.words...)
			second := d.claim("second")
			d.awaitEvent(second, wellknown.EventProvisioningFailed, tt.words...)
			admit()
			third := d.claim("third") // has the manager look at once, however long it would have waited
			d.awaitBound(first, second, third)
			d.wantVolumes(first, second, third)
		})
	}
}

// removeAgents has them come back with admit.
func (d *drill) removeAgents() (admit func()) {
	pods := d.Client.CoreV1().Pods(d.Namespace)
	agents, err := pods.List(d.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: mountjobs.AgentLabels()})})
	d.check(err)
	for _, node := range d.Nodes {
		d.RemoveAgent(node)
	}
	return func() {
		agent := agents.Items[0]
		agent.UID, agent.ResourceVersion = "", ""
		_, err := pods.Create(d.Context(), &agent, metav1.CreateOptions{})
		d.check(err)
		d.SetAgentReady(agent.Spec.NodeName, true)
	}
}

// prioritize gives mount Jobs the priority class of this world.
func (d *drill) prioritize(o *loops.Options) { o.Jobs.PriorityClassName = d.Named("efs-jobs") }

func (d *drill) missPriorityClass() (admit func()) {
	classes := d.Client.SchedulingV1().PriorityClasses()
	return func() {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: d.Named("efs-jobs")}, Value: 1000}
		_, err := classes.Create(d.Context(), class, metav1.CreateOptions{})
		d.check(err)
		d.Cleanup(func() {
			d.check(classes.Delete(context.WithoutCancel(d.Context()), class.Name, metav1.DeleteOptions{}))
		})
	}
}

// TestMountJobsHavePriority over the pods that wait for them; sweeps have none.
func TestMountJobsHavePriority(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil, func(o *loops.Options) { o.Jobs.PriorityClassName = "system-cluster-critical" })
	claim := d.claim("data")
	d.awaitBound(claim)
	d.deleteClaim(claim)
	d.awaitAllGone(claim)
	for kind, want := range map[mountjobs.Kind]int32{mountjobs.Mount: 2_000_000_000, mountjobs.Sweep: 0} {
		d.Eventually(fmt.Sprintf("%v Jobs have the priority %d", kind, want), func(ctx context.Context) error {
			jobs := d.jobs(ctx, kind, d.fileSystem)
			if len(jobs) == 0 {
				return errors.New("there is no Job")
			}
			pod, err := d.podOf(ctx, jobs[0].Name)
			if err != nil {
				return err
			}
			if pod.Spec.Priority == nil || *pod.Spec.Priority != want {
				return fmt.Errorf("pod %s has the priority class %q", pod.Name, pod.Spec.PriorityClassName)
			}
			return nil
		})
	}
}

// quota is one that is used up. Its status is written here, because there is no quota
// controller.
func (d *drill) quota(what corev1.ResourceName, count int64) (admit func()) {
	quotas := d.Client.CoreV1().ResourceQuotas(d.Namespace)
	full := corev1.ResourceList{what: *resource.NewQuantity(count, resource.DecimalSI)}
	quota, err := quotas.Create(d.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: full},
	}, metav1.CreateOptions{})
	d.check(err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: full, Used: full}
	_, err = quotas.UpdateStatus(d.Context(), quota, metav1.UpdateOptions{})
	d.check(err)
	return func() { d.check(quotas.Delete(d.Context(), "full", metav1.DeleteOptions{})) }
}

func (d *drill) restrict() (admit func()) {
	d.labelNamespace(`"restricted"`)
	return func() { d.labelNamespace("null") }
}

func (d *drill) labelNamespace(level string) {
	d.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s}}}`, level)
	_, err := d.Client.CoreV1().Namespaces().Patch(d.Context(), d.Namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	d.check(err)
}

func (d *drill) removeServiceAccount() (admit func()) {
	accounts := d.Client.CoreV1().ServiceAccounts(d.Namespace)
	d.check(accounts.Delete(d.Context(), wellknown.WorkerServiceAccount, metav1.DeleteOptions{}))
	return func() {
		_, err := accounts.Create(d.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.WorkerServiceAccount}}, metav1.CreateOptions{})
		d.check(err)
	}
}
