package testenv

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// NewNamespace creates a namespace that is deleted with the environment.
func (e *Env) NewNamespace(name string) {
	e.Helper()
	e.namespaces = append(e.namespaces, name)
	must(e.Client.CoreV1().Namespaces().Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(e)
}

func (e *Env) newServiceAccount(name string) {
	e.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(e.Client.CoreV1().ServiceAccounts(e.Namespace).Create(e.Context(), account, metav1.CreateOptions{}))(e)
}

// newNode creates a schedulable node with a ready agent.
func (e *Env) newNode(what, zone string) {
	e.Helper()
	name := fmt.Sprintf("node-%d-%s", e.Number, what)
	e.Nodes = append(e.Nodes, name)
	node := must(e.Client.CoreV1().Nodes().Create(e.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "us-east-1"},
	}}, metav1.CreateOptions{}))(e)
	node.Spec.Taints = nil // admission adds the taint not-ready to every new node
	node = must(e.Client.CoreV1().Nodes().Update(e.Context(), node, metav1.UpdateOptions{}))(e)
	node.Status = e.status
	must(e.Client.CoreV1().Nodes().UpdateStatus(e.Context(), node, metav1.UpdateOptions{}))(e)
	e.newAgent(name)
}

// StartScheduler runs Kubernetes' own scheduler for pods that name it, until the end of the test.
func (e *Env) StartScheduler(name string) {
	e.Helper()
	e.Cleanup(must(e.cluster.StartScheduler(name))(e))
}

func agentName(node string) string { return wellknown.NodeDaemonSet + "-" + node }

func (e *Env) newAgent(node string) {
	e.Helper()
	no := false
	must(e.Client.CoreV1().Pods(e.Namespace).Create(e.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: agentName(node), Labels: mountjobs.AgentLabels()},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			ServiceAccountName:           wellknown.WorkerServiceAccount,
			AutomountServiceAccountToken: &no,
			Containers:                   []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}, metav1.CreateOptions{}))(e)
	e.MarkAgentReady(node)
}

// MarkAgentReady sets the condition Ready of a node's agent.
func (e *Env) MarkAgentReady(node string) {
	e.Helper()
	pod := must(e.Client.CoreV1().Pods(e.Namespace).Get(e.Context(), agentName(node), metav1.GetOptions{}))(e)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(e.Client.CoreV1().Pods(e.Namespace).UpdateStatus(e.Context(), pod, metav1.UpdateOptions{}))(e)
}

// RemoveAgent deletes the agent of a node, so that no mount Job can run there.
func (e *Env) RemoveAgent(node string) {
	e.Helper()
	if err := e.Client.CoreV1().Pods(e.Namespace).Delete(e.Context(), agentName(node), immediately()); err != nil {
		e.Fatal(err)
	}
}

// NewFileSystem makes a file system with one mount target, and returns its id. The edits change what
// the EFS API reports of it.
func (e *Env) NewFileSystem(edits ...func(*efs.FileSystem)) (id string) {
	e.Helper()
	k := len(e.fileSystems()) + 1
	id = fmt.Sprintf("fs-%dx%d", e.Number, k)
	folder := filepath.Join(e.folder, id)
	if err := os.Mkdir(folder, 0o755); err != nil {
		e.Fatal(err)
	}
	e.mu.Lock()
	e.folders[id] = folder
	e.mu.Unlock()
	fileSystem := efs.FileSystem{
		ID: id, Name: id, State: efs.Available,
		MountTargets: []efs.MountTarget{{
			SubnetID: "subnet-a", VPCID: "vpc-1",
			ZoneName: "us-east-1a",
			Address:  netip.AddrFrom4([4]byte{10, byte(e.Number), byte(k), 4}), State: efs.Available,
		}},
	}
	for _, edit := range edits {
		edit(&fileSystem)
	}
	e.EFS.Put(fileSystem)
	return id
}

func oneGibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// immediately has no grace period, and deletes pods with their Job.
func immediately() metav1.DeleteOptions {
	now, background := int64(0), metav1.DeletePropagationBackground
	return metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background}
}
