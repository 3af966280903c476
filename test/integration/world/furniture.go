package world

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// NewNamespace makes a namespace that goes with the world.
func (w *World) NewNamespace(name string) {
	w.Helper()
	w.namespaces = append(w.namespaces, name)
	must(w.Client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(w)
}

func (w *World) newServiceAccount(name string) {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(w.Context(), account, metav1.CreateOptions{}))(w)
}

// newNode makes a node that takes pods, with an agent that is ready.
func (w *World) newNode(what, zone string) {
	w.Helper()
	name := fmt.Sprintf("node-%d-%s", w.Number, what)
	w.Nodes = append(w.Nodes, name)
	node := must(w.Client.CoreV1().Nodes().Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "us-east-1"},
	}}, metav1.CreateOptions{}))(w)
	node.Spec.Taints = nil // admission makes every node begin as not ready
	must(w.Client.CoreV1().Nodes().Update(w.Context(), node, metav1.UpdateOptions{}))(w)
	w.newAgent(name)
}

func agentName(node string) string { return wellknown.NodeDaemonSet + "-" + node }

func (w *World) newAgent(node string) {
	w.Helper()
	no := false
	must(w.Client.CoreV1().Pods(w.Namespace).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: agentName(node), Labels: mountjobs.AgentLabels()},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			ServiceAccountName:           wellknown.WorkerServiceAccount,
			AutomountServiceAccountToken: &no,
			Containers:                   []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}, metav1.CreateOptions{}))(w)
	w.SetAgentReady(node, true)
}

// SetAgentReady says whether the tunnels of a node's agent serve.
func (w *World) SetAgentReady(node string, ready bool) {
	w.Helper()
	pod := must(w.Client.CoreV1().Pods(w.Namespace).Get(w.Context(), agentName(node), metav1.GetOptions{}))(w)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	must(w.Client.CoreV1().Pods(w.Namespace).UpdateStatus(w.Context(), pod, metav1.UpdateOptions{}))(w)
}

// RemoveAgent takes the agent off a node, so that no mount Job can run there.
func (w *World) RemoveAgent(node string) {
	w.Helper()
	if err := w.Client.CoreV1().Pods(w.Namespace).Delete(w.Context(), agentName(node), atOnce()); err != nil {
		w.Fatal(err)
	}
}

// NewFileSystem makes a file system with a mount target, and gives its id. The EFS API has it
// as the edits leave it.
func (w *World) NewFileSystem(edits ...func(*efs.FileSystem)) (id string) {
	w.Helper()
	k := len(w.fileSystems()) + 1
	id = fmt.Sprintf("fs-%dx%d", w.Number, k)
	folder := filepath.Join(w.folder, id)
	if err := os.Mkdir(folder, 0o755); err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	w.folders[id] = folder
	w.mu.Unlock()
	fileSystem := efs.FileSystem{
		ID: id, Name: id, State: efs.Available,
		MountTargets: []efs.MountTarget{{
			ID: "fsmt-" + id, FileSystemID: id, SubnetID: "subnet-a", VPCID: "vpc-1",
			ZoneName: "us-east-1a", ZoneID: "use1-az1",
			Address: netip.AddrFrom4([4]byte{10, byte(w.Number), byte(k), 4}), State: efs.Available,
		}},
	}
	for _, edit := range edits {
		edit(&fileSystem)
	}
	w.EFS.Put(fileSystem)
	return id
}

func oneGibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// atOnce takes pods along with their Job.
func atOnce() metav1.DeleteOptions {
	now, background := int64(0), metav1.DeletePropagationBackground
	return metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background}
}
