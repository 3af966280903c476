package inspect

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	testFS   = "fs-0123456789abcdef0"
	cluster  = "c1c1c1c1-0000-4000-8000-000000000001"
	boundUID = "00000000-0000-4000-8000-000000000001"
	newUID   = "00000000-0000-4000-8000-000000000002"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// healthy is an installation with two nodes, a file system and a bound claim, team/data.
func healthy(t *testing.T) *Snapshot {
	t.Helper()
	s := &Snapshot{Namespace: wellknown.Namespace, Provisioner: wellknown.DefaultProvisioner, Now: now}
	s.Manager = deployment("registry.example.com/efs-manager:1.2", "registry.example.com/efs-worker:1.2")
	s.Agents = daemonSet("registry.example.com/efs-stunnel:1.2")
	holder, seconds, renewed := "efs-manager-1_x", int32(15), metav1.NewMicroTime(now.Add(-3*time.Second))
	s.Lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: wellknown.ManagerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	setTable(s, ports.Table{Targets: map[string]ports.Target{testFS: target()}})
	s.Classes = []*storagev1.StorageClass{storageClass()}
	for _, node := range []string{"n1", "n2"} {
		s.Nodes = append(s.Nodes, newNode(node))
		s.Pods = append(s.Pods, agentPod(node))
		s.NodeTunnels = append(s.NodeTunnels, nodeTunnels(node))
	}
	root, rootClaim := volumes.RootObjects(testFS, 20490, s.Namespace)
	root.Status.Phase, rootClaim.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	root.Spec.ClaimRef.UID, rootClaim.UID = "root-uid", "root-uid"
	claim := newClaim("data", boundUID)
	volume := volumeOf(t, claim)
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, corev1.ClaimBound
	s.Claims = []*corev1.PersistentVolumeClaim{claim, rootClaim}
	s.Volumes = []*corev1.PersistentVolume{volume, root}
	return s
}

func target() ports.Target {
	return ports.Target{
		Name: "shared", Port: 20490, DNSName: testFS + ".efs.us-east-1.amazonaws.com",
		AddressByZone: map[string]netip.Addr{"us-east-1a": netip.MustParseAddr("10.0.0.4")},
	}
}

func setTable(s *Snapshot, table ports.Table) {
	s.Table = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: wellknown.TargetsConfigMap, UID: "table-uid"},
		Data:       map[string]string{wellknown.TargetsKey: string(ports.Encode(table))},
	}
}

func deployment(image, worker string) *appsv1.Deployment {
	replicas := int32(2)
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: wellknown.ManagerDeployment}}
	object.Spec.Replicas = &replicas
	object.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: image, Env: []corev1.EnvVar{{Name: "WORKER_IMAGE", Value: worker}}}}
	object.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 2}
	return object
}

func daemonSet(image string) *appsv1.DaemonSet {
	object := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: wellknown.NodeDaemonSet}}
	object.Spec.Template.Spec.Containers = []corev1.Container{{Name: "supervisor", Image: image}}
	object.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	object.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 2, UpdatedNumberScheduled: 2}
	return object
}

func storageClass() *storagev1.StorageClass {
	policy, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner,
		ReclaimPolicy: &policy, VolumeBindingMode: &mode,
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func agentPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: "agent-" + node, Labels: mountjobs.AgentLabels()},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: "registry.example.com/efs-stunnel:1.2"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func newClaim(name string, uid types.UID) *corev1.PersistentVolumeClaim {
	class := "efs"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: uid, CreationTimestamp: ago(5 * time.Minute),
			Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

func setup(t *testing.T, object *corev1.PersistentVolumeClaim) operations.Operation {
	t.Helper()
	class, err := volumes.ParseClass(storageClass())
	if err != nil {
		t.Fatal(err)
	}
	claim, err := volumes.ParseClaim(object, class)
	if err != nil {
		t.Fatal(err)
	}
	operation, err := volumes.Begin(claim, class, volumes.Choice{FileSystemID: testFS}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return operation
}

func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	volume, err := volumes.FromOperation(setup(t, claim), 20490, 0, wellknown.DefaultProvisioner)
	if err != nil {
		t.Fatal(err)
	}
	volume.Status.Phase = corev1.VolumeBound
	return volume
}

// pending adds claim team/new, for which the cluster has asked.
func pending(s *Snapshot) *corev1.PersistentVolumeClaim {
	claim := newClaim("new", newUID)
	s.Claims = append(s.Claims, claim)
	return claim
}

// inJob adds claim team/new and a mount Job for it, whose pod is on node n1.
func inJob(t *testing.T, s *Snapshot) (*batchv1.Job, *corev1.Pod) {
	t.Helper()
	claim := pending(s)
	says(claim, status.DirectoryIsMade, "…")
	return addJob(t, s, setup(t, claim))
}

func addJob(t *testing.T, s *Snapshot, operation operations.Operation) (*batchv1.Job, *corev1.Pod) {
	t.Helper()
	settings := mountjobs.Settings{Namespace: s.Namespace, Image: "registry.example.com/efs-worker:1.2"}
	job, err := mountjobs.Build(mountjobs.Spec{Settings: settings, FileSystemID: testFS, Number: 7, Operations: []operations.Operation{operation}})
	if err != nil {
		t.Fatal(err)
	}
	return job, run(s, job)
}

// inCloneJob has claim team/new be a copy of team/data, which a Job makes.
func inCloneJob(t *testing.T, s *Snapshot) *corev1.Pod {
	t.Helper()
	claim := pending(s)
	says(claim, status.VolumeIsCopied, "…")
	operation := setup(t, claim)
	operation.Kind, operation.Directory, operation.Rules = operations.Clone, operations.Directory{}, operations.Rules{}
	operation.Source = operations.Source{SourcePath: "/team/data", SourceVolume: "pvc-" + boundUID, SourceClaim: "data", SourceClaimUID: boundUID}
	settings := mountjobs.Settings{Namespace: s.Namespace, Image: "registry.example.com/efs-worker:1.2"}
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Clone, Settings: settings, FileSystemID: testFS, Number: 2, Operations: []operations.Operation{operation}})
	if err != nil {
		t.Fatal(err)
	}
	return run(s, job)
}

// TestJobWhoseOutcomeWasUsedIsNoProblem: it stays for an hour, and is no cause of what is wrong later.
func TestJobWhoseOutcomeWasUsedIsNoProblem(t *testing.T) {
	for _, isReleased := range []bool{false, true} {
		s := healthy(t)
		pod := inCloneJob(t, s)
		end(pod, 137, "")
		job := s.Jobs[len(s.Jobs)-1]
		if isReleased {
			job.Finalizers = nil
		}
		lost := derive(s).checkJobs()[0]
		if isProblem := lost.Level == Problem; isProblem == isReleased {
			t.Errorf("with its outcome used: %t: got %+v", isReleased, lost)
		}
	}
}

// addSweep adds a sweep Job, whose pod is on node n1.
func addSweep(t *testing.T, s *Snapshot) (*batchv1.Job, *corev1.Pod) {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Sweep, Settings: mountjobs.Settings{Namespace: s.Namespace, Image: "w"}, FileSystemID: testFS, Number: 3})
	if err != nil {
		t.Fatal(err)
	}
	return job, run(s, job)
}

// run adds a Job, and its pod.
func run(s *Snapshot, job *batchv1.Job) *corev1.Pod {
	job.UID, job.CreationTimestamp = types.UID(job.Name), ago(time.Minute)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: job.Name + "-abcde", UID: "pod-uid", Labels: job.Spec.Template.Labels,
			CreationTimestamp: ago(time.Minute), Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   *job.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	pod.Spec.NodeName = "n1"
	setState(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	s.Jobs, s.Pods = append(s.Jobs, job), append(s.Pods, pod)
	return pod
}

func setState(pod *corev1.Pod, state corev1.ContainerState) {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: mountjobs.ContainerName, State: state}}
}

// waitsForMount is a Job's pod that the kubelet cannot start.
func waitsForMount(s *Snapshot, pod *corev1.Pod, message string) {
	pod.Status.Phase = corev1.PodPending
	setState(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, "FailedMount", message, time.Minute)
}

func addEvent(s *Snapshot, component string, about corev1.ObjectReference, reason, message string, before time.Duration) {
	s.Events = append(s.Events, corev1.Event{
		InvolvedObject: about, Reason: reason, Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: component}, LastTimestamp: ago(before),
	})
}

// says has the manager say why a claim has no volume.
func says(claim *corev1.PersistentVolumeClaim, cause Cause, message string) {
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
		Type: wellknown.ConditionProvisioned, Status: corev1.ConditionFalse, Reason: string(cause), Message: message, LastTransitionTime: ago(time.Minute),
	}}
}

// tableProblem has the leader say what is wrong with the installation, or with its file system.
func tableProblem(s *Snapshot, reason, message string, before time.Duration) {
	held := status.Condition{Reason: reason, Message: message, Since: now.Add(-before)}
	if slices.Contains(status.TypesOf(status.FileSystem), held.TypeOf()) {
		fileSystemProblem(s, testFS, held)
		return
	}
	s.Installation = &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	s.Installation.Status.Conditions = v1alpha1.NewConditions(status.Installation, []status.Condition{held}, nil, now)
}

func fileSystemProblem(s *Snapshot, id string, held status.Condition) {
	object := &v1alpha1.FileSystem{ObjectMeta: metav1.ObjectMeta{Name: id}}
	object.Status.Conditions = v1alpha1.NewConditions(status.FileSystem, []status.Condition{held}, nil, now)
	s.FileSystemObjects = append(s.FileSystemObjects, object)
}

// tunnelProblem has the agent of n1 say what is wrong with its tunnel.
func tunnelProblem(s *Snapshot, reason, message string, before time.Duration) {
	n1 := s.NodeTunnels[0]
	n1.Status.Tunnels = append(n1.Status.Tunnels, v1alpha1.Tunnel{Name: testFS, Problems: []v1alpha1.Problem{
		{Reason: reason, Message: message, Since: metav1.NewTime(now.Add(-before))},
	}})
}

func nodeTunnels(node string) *v1alpha1.NodeTunnels {
	object := &v1alpha1.NodeTunnels{ObjectMeta: metav1.ObjectMeta{Name: node}}
	object.Status.Conditions = v1alpha1.NewConditions(status.Node, nil, nil, now)
	return object
}

func nodeEvent(s *Snapshot, reason, message string, before time.Duration) {
	addEvent(s, eventComponent, corev1.ObjectReference{Kind: "Node", Name: "n1", UID: "n1"}, reason, message, before)
}

func selectFileSystem() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.LabelFileSystemID: testFS}}
}
