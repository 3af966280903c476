//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// createServerPod creates the pod of a server on a node, as a StatefulSet and the scheduler do.
func (f *fixture) createServerPod(id string) *corev1.Pod {
	f.Helper()
	pod, err := f.Client.CoreV1().Pods(f.Namespace).Create(f.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "server-0", Labels: map[string]string{wellknown.LabelServer: id}},
		Spec: corev1.PodSpec{
			NodeName: "a-node", Containers: []corev1.Container{{Name: "nfsserver", Image: "x"}},
			InitContainers: []corev1.Container{{Name: wellknown.QuotasContainer, Image: "x"}},
		},
	}, metav1.CreateOptions{})
	f.check(err)
	return pod
}

// reportPod writes the status of a pod as a kubelet does.
func (f *fixture) reportPod(pod *corev1.Pod, ready corev1.ConditionStatus, quotas string) {
	f.Helper()
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, Message: "containers with unready status: [nfsserver]"}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: wellknown.QuotasContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: quotas}},
	}}
	pod.ResourceVersion = ""
	_, err := f.Client.CoreV1().Pods(f.Namespace).UpdateStatus(f.Context(), pod, metav1.UpdateOptions{})
	f.check(err)
}

// waitForShown waits until a condition of a FileSystem has a status, a reason and a part of a message.
func (f *fixture) waitForShown(id, conditionType string, want metav1.ConditionStatus, reason, message string) {
	f.Helper()
	f.Eventually(fmt.Sprintf("%s is %s because of %s", conditionType, want, reason), func(ctx context.Context) error {
		object, err := f.Dynamic.Resource(v1alpha1.FileSystems()).Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		shown, err := v1alpha1.Read[v1alpha1.FileSystem](object)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(shown.Status.Conditions, conditionType)
		if c == nil || c.Status != want || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// TestServerIsShownAsItsPodIs: full, killed, ready, and with or without quotas, by the rights of the component. Its target
// stays as it is.
func TestServerIsShownAsItsPodIs(t *testing.T) {
	f := newServerFixture(t, installConditions)
	id := f.Named("nfs")
	service := f.createServer("one", id)
	service.Spec.Selector = map[string]string{wellknown.LabelServer: id}
	service, err := f.Client.CoreV1().Services(f.Namespace).Update(t.Context(), service, metav1.UpdateOptions{})
	f.check(err)
	f.check(f.renewCertificates(f.Client, time.Now(), "one"))
	f.waitForShown(id, status.Usable, metav1.ConditionFalse, "ServerNotReady", "its Service one leads to no pod")
	target := f.waitForTarget(id, atAddressOf(service))

	pod := f.createServerPod(id)
	f.reportPod(pod, corev1.ConditionTrue, wellknown.QuotasEnforced)
	f.waitForShown(id, status.Usable, metav1.ConditionTrue, status.AsExpected, "")
	f.waitForShown(id, status.SizesEnforced, metav1.ConditionTrue, status.AsExpected, "")

	_, err = f.Client.CoreV1().Events(f.Namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "full"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: f.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "Unhealthy", Message: "[-] disk: it is full",
	}, metav1.CreateOptions{})
	f.check(err)
	f.reportPod(pod, corev1.ConditionFalse, "the file system is not xfs")
	f.waitForShown(id, status.Usable, metav1.ConditionFalse, "ServerNotReady", "the pod server-0 of its server is not ready: [-] disk: it is full")
	f.waitForShown(id, status.SizesEnforced, metav1.ConditionFalse, "SizesNotEnforced", "the file system is not xfs")
	f.waitForEvent(service, "ServerNotReady", "it is full")

	now := int64(0)
	f.check(f.Client.CoreV1().Pods(f.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	f.waitForShown(id, status.Usable, metav1.ConditionFalse, "ServerNotReady", "leads to no pod")
	f.waitForShown(id, status.SizesEnforced, metav1.ConditionFalse, "SizesNotEnforced", "")
	f.waitForTarget(id, func(now ports.Target) error {
		if now.Port != target.Port {
			return fmt.Errorf("its port is %d, want %d", now.Port, target.Port)
		}
		return nil
	})
	f.reportPod(f.createServerPod(id), corev1.ConditionTrue, wellknown.QuotasEnforced)
	f.waitForShown(id, status.Usable, metav1.ConditionTrue, status.AsExpected, "")
	f.waitForShown(id, status.SizesEnforced, metav1.ConditionTrue, status.AsExpected, "")
}
