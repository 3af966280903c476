package inspect

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// TestFaults has what the rows of "When a part fails" in docs/reference/failures.md do not distinguish.
func TestFaults(t *testing.T) {
	const (
		fs, node        = "file system " + testFS, "node n1"
		manager, leader = "deployment efs-manager", "lease efs-manager"
	)
	tests := map[string]struct {
		edit func(*testing.T, *Snapshot)
		want expectation
	}{
		"nothing":                  {func(*testing.T, *Snapshot) {}, expectation{manager, OK, ""}},
		"the manager is not there": {func(_ *testing.T, s *Snapshot) { s.Manager, s.Lease = nil, nil }, expectation{manager, Problem, ManagerMissing}},
		"it runs outside":          {func(_ *testing.T, s *Snapshot) { s.Manager = nil }, expectation{manager, Note, ""}},
		"there never was a leader": {func(_ *testing.T, s *Snapshot) { s.Lease = nil }, expectation{leader, Problem, NoLeader}},
		"no leader is wanted": {func(_ *testing.T, s *Snapshot) {
			s.Lease = nil
			s.Manager.Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
		}, expectation{leader, Note, ""}},
		"another version":          {func(_ *testing.T, s *Snapshot) { s.Agents = daemonSet("efs-stunnel:1.3") }, expectation{"images", Problem, VersionSkew}},
		"the agents are not there": {func(_ *testing.T, s *Snapshot) { s.Agents = nil }, expectation{"daemonset efs-stunnel", Problem, AgentsMissing}},
		"a node that is not served": {func(_ *testing.T, s *Snapshot) {
			s.Nodes = append(s.Nodes, newNode("n3"))
			delete(s.Nodes[2].Labels, corev1.LabelOSStable)
		}, expectation{"node n2", OK, ""}},
		"a node has the taint": {func(_ *testing.T, s *Snapshot) {
			s.Nodes[0].Spec.Taints = []corev1.Taint{{Key: wellknown.TaintAgentNotReady}}
		}, expectation{node, Note, StartupTaint}},
		"a port is taken": {func(_ *testing.T, s *Snapshot) { tunnelProblem(s, wellknown.EventPortTaken, "taken", time.Minute) }, expectation{node, Problem, wellknown.EventPortTaken}},
		"the pinned ConfigMap is unreadable": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventTableUnreadable, "ConfigMap efs-stunnel-pinned cannot be read", time.Minute)
		}, expectation{"installation efs-stunnel", Problem, TableUnreadable}},
		"a target is unreadable": {func(_ *testing.T, s *Snapshot) {
			bad := target()
			bad.Port = 20491
			setTable(s, ports.Table{Targets: map[string]ports.Target{testFS: target(), "fs-bad": bad}})
			s.Table.Data[wellknown.TargetsKey] = strings.ReplaceAll(s.Table.Data[wellknown.TargetsKey], "20491", "none")
		}, expectation{"file system fs-bad", Problem, TableUnreadable}},
		"another account": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventIdentityLooksWrong, "111/us-east-1", time.Minute)
		}, expectation{"installation efs-stunnel", Problem, wellknown.EventIdentityLooksWrong}},
		"a file system": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventFileSystemUnusable, testFS+": no mount target", time.Minute)
		}, expectation{fs, Problem, wellknown.EventFileSystemUnusable}},
		"no file system": {func(_ *testing.T, s *Snapshot) { setTable(s, ports.Table{}) }, expectation{"table", Note, NoFileSystem}},
		"it is not listed": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventFileSystemMissing, "gone", time.Minute)
		}, expectation{fs, Problem, wellknown.EventFileSystemMissing}},
		"the clock of the leader": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, status.ClockWrong, "it is 40s ahead", time.Minute)
		}, expectation{"installation efs-stunnel", Problem, status.ClockWrong}},
		"another installation": {func(_ *testing.T, s *Snapshot) { s.Volumes[1].Spec.ClaimRef.Namespace = "other" }, expectation{fs, Problem, RootVolumeConflict}},
		"a sweep": {func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventSweepFailed, "no", time.Minute)
		}, expectation{fs, Problem, wellknown.EventSweepFailed}},
		"a sweep, which is repeated": {func(t *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventSweepFailed, "no", time.Minute)
			addSweep(t, s)
		}, expectation{fs, Problem, wellknown.EventSweepFailed}},
		"a sweep Job that hangs": {func(t *testing.T, s *Snapshot) {
			job, pod := addSweep(t, s)
			job.CreationTimestamp, pod.CreationTimestamp = ago(24*time.Hour), ago(24*time.Hour)
		}, expectation{"job efs-sweep-" + testFS + "-00003", Problem, JobStuck}},
		"a mount Job that hangs": {func(t *testing.T, s *Snapshot) {
			job, pod := inJob(t, s)
			job.CreationTimestamp, pod.CreationTimestamp = ago(time.Hour), ago(time.Hour)
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, JobStuck}},
		"a mount Job of another version": {func(t *testing.T, s *Snapshot) {
			job, _ := addJob(t, s, operations.Operation{Kind: operations.Setup})
			job.Annotations[wellknown.AnnotationOperations] = "{"
			job.Spec.Template.Annotations = job.Annotations
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, JobUnreadable}},
		"the StorageClass is deleted": {func(_ *testing.T, s *Snapshot) { s.Classes = nil }, expectation{"storage classes", Note, NoClass}},
		"a right is missing": {func(_ *testing.T, s *Snapshot) {
			s.Volumes, s.Unread = nil, []Unread{{Verb: "list", Resource: volumeResource}}
		}, expectation{"volumes", Unknown, RightMissing}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(t, s)
			expect(t, s, tt.want)
		})
	}
}

func withTarget(s *Snapshot, edit func(*ports.Target)) {
	changed := target()
	edit(&changed)
	setTable(s, ports.Table{Targets: map[string]ports.Target{testFS: changed}})
}

// TestProblemLastsAsLongAsItsObjectSaysSo: events are gone after an hour, and say nothing about now.
func TestProblemLastsAsLongAsItsObjectSaysSo(t *testing.T) {
	s := healthy(t)
	tunnelProblem(s, wellknown.EventPortTaken, "taken", 48*time.Hour)
	nodeEvent(s, wellknown.EventProblemEnded, "PortTaken has ended", time.Minute)
	expect(t, s, expectation{"node n1", Problem, wellknown.EventPortTaken})
}

// TestFoundServerHidesNoFailingDiscovery: the event that a pinned server was found names no file system of
// EFS, and once hid every problem that named none either.
func TestFoundServerHidesNoFailingDiscovery(t *testing.T) {
	s := healthy(t)
	tableProblem(s, wellknown.EventDiscoveryFailed, "AccessDenied", 20*time.Minute)
	addEvent(s, eventComponent, corev1.ObjectReference{
		Kind: "ConfigMap", Namespace: s.Namespace, Name: wellknown.TargetsConfigMap, UID: "table-uid",
	}, wellknown.EventFileSystemFound, "nas-1: files has port 20491", time.Minute)
	expect(t, s, expectation{"installation efs-stunnel", Problem, wellknown.EventDiscoveryFailed})
}

// TestConflictsOfTwoServersAreTwo: their messages name no file system of EFS, and once counted as one.
func TestConflictsOfTwoServersAreTwo(t *testing.T) {
	s := healthy(t)
	setTable(s, ports.Table{Targets: map[string]ports.Target{testFS: target(), "nas-1": target(), "nas-2": target()}})
	for _, id := range []string{"nas-1", "nas-2"} {
		fileSystemProblem(s, id, status.Condition{Reason: wellknown.EventPortConflict, Message: id + " is pinned to port 20490"})
	}
	for _, id := range []string{"nas-1", "nas-2"} {
		expect(t, s, expectation{"file system " + id, Problem, wellknown.EventPortConflict})
	}
}

// TestMissingDefinitionsAreSaidOnce, and the rest is examined as ever.
func TestMissingDefinitionsAreSaidOnce(t *testing.T) {
	s := healthy(t)
	s.NodeTunnels, s.Undefined = nil, true
	if notes := of(derive(s).examine(), Note); len(notes) != 1 || notes[0].Cause != DefinitionsMissing {
		t.Errorf("got %+v", notes)
	}
	if got := NewStatus(s); got.Level != Note || got.Agents[0].TunnelText() != "unknown" {
		t.Errorf("got %+v", got)
	}
}

// TestHealthyInstallationsHaveNoProblem: not everything unusual is one.
func TestHealthyInstallationsHaveNoProblem(t *testing.T) {
	tests := map[string]func(*testing.T, *Snapshot){
		"as installed": func(*testing.T, *Snapshot) {},
		"a claim of another provisioner": func(_ *testing.T, s *Snapshot) {
			other := "other"
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations = &other, nil
		},
		"a Job of another owner": func(t *testing.T, s *Snapshot) {
			job, pod := inJob(t, s)
			job.CreationTimestamp, pod.CreationTimestamp = ago(time.Hour), ago(time.Hour)
			controls := true
			job.OwnerReferences = []metav1.OwnerReference{{Name: "x", Controller: &controls}}
			s.Claims = s.Claims[:2]
		},
		"an agent that is replaced": func(_ *testing.T, s *Snapshot) {
			old := agentPod("n1")
			deleted := ago(time.Second)
			old.DeletionTimestamp, old.Status.Conditions = &deleted, nil
			s.Pods = append(s.Pods, old)
		},
		"an address by subnet": func(_ *testing.T, s *Snapshot) {
			withTarget(s, func(t *ports.Target) {
				t.AddressByZone, t.AddressBySubnet = nil, map[string]netip.Addr{"subnet-1": netip.MustParseAddr("10.0.0.4")}
			})
		},
		"an address of IPv6 only": func(_ *testing.T, s *Snapshot) {
			withTarget(s, func(t *ports.Target) {
				t.AddressByZone, t.IPv6ByZone = nil, map[string]netip.Addr{"us-east-1a": netip.MustParseAddr("fd00::4")}
			})
		},
		"a volume on an access point": func(_ *testing.T, s *Snapshot) {
			onPoint(s, 20777)
		},
		"images by digest": func(_ *testing.T, s *Snapshot) {
			s.Manager, s.Agents = deployment("m@sha256:1", "w@sha256:2"), daemonSet("a@sha256:3")
		},
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			edit(t, s)
			for _, r := range of(derive(s).examine(), Problem) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestRemedyIsThatOfTheFailedProbe: a security group does not mend a certificate.
func TestRemedyIsThatOfTheFailedProbe(t *testing.T) {
	for failed, want := range map[string]string{tunnelspec.ProbeCertificate: "EFS_CA_FILE", tunnelspec.ProbeTimeout: "network ACLs", "": "its state in AWS"} {
		s := healthy(t)
		tunnelProblem(s, wellknown.EventTunnelUnhealthy, "unhealthy", time.Minute)
		s.NodeTunnels[0].Status.Tunnels[0].Problems[0].Cause = &v1alpha1.Cause{Kind: string(status.MountTarget), Name: "10.0.0.4", Reason: failed}
		found := of(derive(s).examine(), Problem)
		if len(found) != 1 || !strings.Contains(found[0].Remedy, want) {
			t.Errorf("failed probe %q: got %+v, want a remedy with %q", failed, found, want)
		}
	}
}

// TestServerThatIsNotReadyIsNamed: with what the kubelet has recorded of its probes and volumes, and once, although the
// manager says it, too.
func TestServerThatIsNotReadyIsNamed(t *testing.T) {
	const full = "Readiness probe failed: [-] disk: it is full"
	for name, tt := range map[string]struct {
		edit func(*Snapshot, *corev1.Pod)
		want []string
	}{
		"full": {func(s *Snapshot, pod *corev1.Pod) {
			addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}, "Unhealthy", full, time.Minute)
		}, []string{"pod efs-nfs-server-0", full}},
		"crashing": {func(_ *Snapshot, pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "nfsserver", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff",
			}}, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "want a folder that is the root"}}}}
		}, []string{"CrashLoopBackOff", "want a folder that is the root"}},
		"on a dead node": {func(_ *Snapshot, pod *corev1.Pod) {
			deleted := ago(time.Minute)
			pod.DeletionTimestamp, pod.Spec.NodeName = &deleted, "n2"
		}, []string{"kubectl taint node n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}},
	} {
		s := healthy(t)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "efs-nfs-server-0", Labels: map[string]string{wellknown.LabelServer: testFS}}}
		tableProblem(s, string(ServerNotReady), "the manager's message", time.Minute)
		if found := of(derive(s).examine(), Problem); len(found) != 1 || !strings.Contains(found[0].Message, "the manager's message") || found[0].Remedy == "" {
			t.Errorf("without its pod: got %+v", found)
		}
		s.Pods = append(s.Pods, pod)
		tt.edit(s, pod)
		found := of(derive(s).examine(), Problem)
		if len(found) != 1 || found[0].Cause != ServerNotReady || found[0].Object != "file system "+testFS {
			t.Fatalf("%s: got %+v", name, found)
		}
		for _, want := range tt.want {
			if !strings.Contains(found[0].Message, want) {
				t.Errorf("%s: got %q, want %q in it", name, found[0].Message, want)
			}
		}
		if !slices.Contains(slices.Concat(s.PodsByPart()), pod) {
			t.Errorf("%s: its log is not collected", name)
		}
	}
}
