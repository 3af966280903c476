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

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

func TestCleanupThatCannotMountIsReportedOnItsVolume(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	claim := f.createClaim("data")
	volume := f.waitForBound(claim)
	over := make(chan struct{})
	f.Kubelet.QueueBehavior(kubelet.Behavior{FailedMount: "mount.nfs: Connection refused for 127.0.0.1:/ on /mnt", Until: over})
	f.deleteClaims(claim)
	f.waitForEvent(volume, wellknown.EventVolumeFailedDelete, "mount refused on 127.0.0.1:", "is the efs-stunnel pod on node")
	close(over)
	f.waitForCleanupAndSweep(claim)
}

// TestRefusedJobOrPodIsReportedUntilItIsAdmitted: the apiserver refuses it, or no node takes it.
func TestRefusedJobOrPodIsReportedUntilItIsAdmitted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		refuse func(*fixture) (admit func())
		texts  []string
		edit   func(*fixture, *loops.Options)
	}{
		"no priority class":  {(*fixture).withoutPriorityClass, []string{"no PriorityClass with name", "--worker-priority-class"}, (*fixture).setPriorityClass},
		"no agent":           {(*fixture).removeAgents, []string{"no node with an efs-stunnel pod takes the mount Job", "match pod affinity rules"}, nil},
		"quota of pods":      {func(f *fixture) func() { return f.fillQuota(corev1.ResourcePods, 2) }, []string{"quota", "exceeded quota: full", "raise it"}, nil},
		"quota of Jobs":      {func(f *fixture) func() { return f.fillQuota("count/jobs.batch", 0) }, []string{"no mount Job can begin", "exceeded quota: full"}, nil},
		"security level":     {(*fixture).restrict, []string{`violates PodSecurity "restricted:latest"`, "pod-security.kubernetes.io/enforce=privileged"}, nil},
		"no service account": {(*fixture).removeServiceAccount, []string{"efs-worker", "apply the manifests"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			admit := tt.refuse(f)
			f.startManager(nil, func(o *loops.Options) {
				if tt.edit != nil {
					tt.edit(f, o)
				}
			})
			first := f.createClaim("first")
			f.waitForEvent(first, wellknown.EventProvisioningFailed, tt.texts...)
			second := f.createClaim("second")
			f.waitForEvent(second, wellknown.EventProvisioningFailed, tt.texts...)
			admit()
			third := f.createClaim("third") // has the manager sync at once
			f.waitForBound(first, second, third)
			f.expectVolumes(first, second, third)
		})
	}
}

// removeAgents deletes the node agents. One is created again with admit.
func (f *fixture) removeAgents() (admit func()) {
	pods := f.Client.CoreV1().Pods(f.Namespace)
	agents, err := pods.List(f.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: mountjobs.AgentLabels()})})
	f.check(err)
	for _, node := range f.Nodes {
		f.RemoveAgent(node)
	}
	return func() {
		agent := agents.Items[0]
		agent.UID, agent.ResourceVersion = "", ""
		_, err := pods.Create(f.Context(), &agent, metav1.CreateOptions{})
		f.check(err)
		f.MarkAgentReady(agent.Spec.NodeName)
	}
}

func (f *fixture) setPriorityClass(o *loops.Options) { o.Jobs.PriorityClassName = f.Named("efs-jobs") }

func (f *fixture) withoutPriorityClass() (admit func()) {
	classes := f.Client.SchedulingV1().PriorityClasses()
	return func() {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: f.Named("efs-jobs")}, Value: 1000}
		_, err := classes.Create(f.Context(), class, metav1.CreateOptions{})
		f.check(err)
		f.Cleanup(func() {
			f.check(classes.Delete(context.WithoutCancel(f.Context()), class.Name, metav1.DeleteOptions{}))
		})
	}
}

// fillQuota creates a quota that is used up. Its status is written here, because no quota controller
// runs.
func (f *fixture) fillQuota(what corev1.ResourceName, count int64) (admit func()) {
	quotas := f.Client.CoreV1().ResourceQuotas(f.Namespace)
	full := corev1.ResourceList{what: *resource.NewQuantity(count, resource.DecimalSI)}
	quota, err := quotas.Create(f.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: full},
	}, metav1.CreateOptions{})
	f.check(err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: full, Used: full}
	_, err = quotas.UpdateStatus(f.Context(), quota, metav1.UpdateOptions{})
	f.check(err)
	return func() { f.check(quotas.Delete(f.Context(), "full", metav1.DeleteOptions{})) }
}

func (f *fixture) restrict() (admit func()) {
	f.labelNamespace(`"restricted"`)
	return func() { f.labelNamespace("null") }
}

func (f *fixture) labelNamespace(level string) {
	f.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s}}}`, level)
	_, err := f.Client.CoreV1().Namespaces().Patch(f.Context(), f.Namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	f.check(err)
}

func (f *fixture) removeServiceAccount() (admit func()) {
	accounts := f.Client.CoreV1().ServiceAccounts(f.Namespace)
	f.check(accounts.Delete(f.Context(), wellknown.WorkerServiceAccount, metav1.DeleteOptions{}))
	return func() {
		_, err := accounts.Create(f.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.WorkerServiceAccount}}, metav1.CreateOptions{})
		f.check(err)
	}
}
