//go:build integration

package integration_test

import (
	"context"
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
