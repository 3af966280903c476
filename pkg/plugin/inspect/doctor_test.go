package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

var (
	newClaimSubject = subjectOf(KindClaim, "new")
	dataSubject     = subjectOf(KindClaim, "data")
	podSubject      = subjectOf(KindPod, "user")
)

// subjectOf has one in namespace team, if the kind has namespaces.
func subjectOf(kind, name string) Subject {
	s := Subject{kind, types.NamespacedName{Name: name}}
	if s.IsNamespaced() {
		s.Namespace = "team"
	}
	return s
}

// use adds a pod that has claim team/data, on node n2.
func use(s *Snapshot) *corev1.Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	pod.Namespace, pod.Name, pod.Spec.NodeName = "team", "user", "n2"
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	s.Users = append(s.Users, pod)
	return pod
}

// TestDoctorNamesTheCause: of what a user asks about, not only its symptom.
func TestDoctorNamesTheCause(t *testing.T) {
	const refused = "MountVolume.SetUp failed: mount failed: exit status 32\nMounting arguments: -o port=20490\nOutput: mount.nfs: Connection refused"
	tests := map[string]struct {
		subject Subject
		edit    func(*testing.T, *Snapshot)
		want    expectation
	}{
		"a claim whose Job is refused by a failed agent": {newClaimSubject, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			waitsForMount(s, pod, refused)
			s.Pods[0].Status.Conditions = nil
		}, expectation{"node n1", Problem, AgentNotReady}},
		"a claim whose Job is refused": {newClaimSubject, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			waitsForMount(s, pod, refused)
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, "MountRefused"}},
		"a claim whose Job waits for a silent mount target": {newClaimSubject, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			waitsForMount(s, pod, "MountVolume.SetUp failed: mount failed: exit status 32\nOutput: mount.nfs: Connection timed out")
			tunnelProblem(s, wellknown.EventTunnelUnhealthy, "no answer", time.Minute)
		}, expectation{"node n1", Problem, wellknown.EventTunnelUnhealthy}},
		"a claim without a manager": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s)
			s.Lease, s.Manager.Status.ReadyReplicas = nil, 0
		}, expectation{"deployment efs-manager", Problem, ManagerDown}},
		"a claim without a leader": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s)
			s.Lease = nil
		}, expectation{"claim team/new", Problem, NoLeader}},
		"a claim that waits for discovery": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s)
			says(s.Claims[2], status.WaitsForFileSystem, "…")
			tableProblem(s, wellknown.EventDiscoveryFailed, "AccessDenied", time.Minute)
		}, expectation{"installation efs-stunnel", Problem, wellknown.EventDiscoveryFailed}},
		"a claim behind another installation": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s)
			says(s.Claims[2], status.NoMountJob, "…")
			withTarget(s, func(*ports.Target) {})
			s.Volumes[1].Spec.ClaimRef.Namespace = "other"
			s.Claims[2].Spec.Selector = selectFileSystem()
		}, expectation{"file system " + testFS, Problem, RootVolumeConflict}},
		"a claim that waits for its turn": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			says(pending(s), status.WaitsForJob, "…")
		}, expectation{"claim team/new", Note, status.WaitsForJob}},
		"a claim that waits for a pod, and another class is wrong": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			mode := storagev1.VolumeBindingWaitForFirstConsumer
			s.Classes[0].VolumeBindingMode = &mode
			wrong := s.Classes[0].DeepCopy()
			wrong.Name, wrong.Parameters = "wrong", map[string]string{"unheardOf": "1"}
			s.Classes = append(s.Classes, wrong)
			pending(s).Annotations = nil
		}, expectation{"claim team/new", Note, WaitsForConsumer}},
		"a claim that does not exist": {newClaimSubject, func(*testing.T, *Snapshot) {}, expectation{"claim team/new", Problem, ClaimMissing}},
		"a claim of a class that does not exist": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			s.Classes = nil
			pending(s).Annotations = nil
		}, expectation{"claim team/new", Problem, ClassMissing}},
		"a claim without a class, and no default one": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations = nil, nil
		}, expectation{"claim team/new", Problem, NoDefaultClass}},
		"a claim without a class, before it gets the default one": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			s.Classes[0].Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations = nil, nil
		}, expectation{"claim team/new", Note, WaitsForCluster}},
		"a claim that wants no class": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			none := ""
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations = &none, nil
		}, expectation{"claim team/new", Note, NotOurs}},
		"a claim of another provisioner": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			name := "other"
			s.Classes = append(s.Classes, &storagev1.StorageClass{Provisioner: "example.com/other"})
			s.Classes[1].Name = name
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations = &name, nil
		}, expectation{"claim team/new", Problem, NotOurs}},
		"a claim bound to a volume of another provisioner": {newClaimSubject, func(_ *testing.T, s *Snapshot) {
			name := ""
			claim := pending(s)
			claim.Spec.StorageClassName, claim.Annotations, claim.Spec.VolumeName = &name, nil, "pv"
		}, expectation{"claim team/new", Note, NotOurs}},
		"a pod that cannot mount": {dataSubject, func(_ *testing.T, s *Snapshot) {
			pod := use(s)
			addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: "team", Name: pod.Name}, "FailedMount", "Connection refused", time.Minute)
			s.Pods = s.Pods[:1]
		}, expectation{"node n2", Problem, AgentMissing}},
		"a pod that cannot mount, and the agent is ready": {dataSubject, func(_ *testing.T, s *Snapshot) {
			pod := use(s)
			addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: "team", Name: pod.Name}, "FailedMount", "bad option", time.Minute)
		}, expectation{"claim team/data", Problem, PodsWaitForMount}},
		"a pod whose node has no agent": {podSubject, func(_ *testing.T, s *Snapshot) {
			pod := use(s)
			addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: "team", Name: pod.Name}, "FailedMount", "Connection refused", time.Minute)
			s.Pods = s.Pods[:1]
		}, expectation{"node n2", Problem, AgentMissing}},
		"a pod whose claim is refused": {podSubject, func(_ *testing.T, s *Snapshot) {
			reject(pending(s))
			pod := use(s)
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, pod.Spec.NodeName = "new", ""
		}, expectation{"claim team/new", Problem, status.ClaimRejected}},
		"a pod that waits for a directory": {podSubject, func(t *testing.T, s *Snapshot) {
			inJob(t, s)
			use(s).Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "new"
		}, expectation{"claim team/new", Note, status.DirectoryIsMade}},
		"a claim whose setup failed, in a Job whose worker waits": {newClaimSubject, func(t *testing.T, s *Snapshot) {
			inJob(t, s)
			says(s.Claims[2], status.SetupFailed, "…")
		}, expectation{"claim team/new", Problem, status.SetupFailed}},
		"a pod that crashes": {podSubject, func(_ *testing.T, s *Snapshot) {
			use(s).Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}, expectation{"pod team/user", Note, PodNotReady}},
		"a pod that is being deleted": {podSubject, func(_ *testing.T, s *Snapshot) {
			deleted := ago(time.Minute)
			use(s).DeletionTimestamp = &deleted
		}, expectation{"pod team/user", Note, PodNotReady}},
		"a pod with other volumes": {podSubject, func(_ *testing.T, s *Snapshot) {
			use(s).Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "of-another-driver"
		}, expectation{"pod team/user", Note, PodNotOurs}},
		"a pod that does not exist":              {podSubject, func(*testing.T, *Snapshot) {}, expectation{"pod team/user", Problem, PodMissing}},
		"a file system that is not in the table": {subjectOf(KindFileSystem, "fs-1"), func(*testing.T, *Snapshot) {}, expectation{"file system fs-1", Problem, FileSystemUnknown}},
		"a file system": {subjectOf(KindFileSystem, testFS), func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventFileSystemUnusable, "no mount target", time.Minute)
		}, expectation{"file system " + testFS, Problem, wellknown.EventFileSystemUnusable}},
		"a node":                     {subjectOf(KindNode, "n1"), func(_ *testing.T, s *Snapshot) { s.Pods = s.Pods[1:] }, expectation{"node n1", Problem, AgentMissing}},
		"a node that does not exist": {subjectOf(KindNode, "n3"), func(*testing.T, *Snapshot) {}, expectation{"node n3", Problem, NodeMissing}},
		"the installation": {Subject{}, func(_ *testing.T, s *Snapshot) {
			s.Pods[1].Status.Conditions = nil
		}, expectation{"node n2", Problem, AgentNotReady}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(t, s)
			d := Examine(s, tt.subject)
			if d.Cause == nil {
				t.Fatalf("no cause: %+v", d)
			}
			if diff := cmp.Diff(tt.want, expectation{d.Cause.Object, d.Cause.Level, d.Cause.Cause}, cmp.AllowUnexported(expectation{})); diff != "" {
				t.Errorf("cause mismatch (-want +got):\n%s%+v", diff, d)
			}
		})
	}
}

// TestAgentsOfAnAffinity: a node that the DaemonSet's affinity selects needs an agent, and others do not. A pod
// that the scheduler has no room for is known to be of its node.
func TestAgentsOfAnAffinity(t *testing.T) {
	required := func(term corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
		}}}
	}
	noFargate := required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fargate"}},
	}})
	tests := map[string]struct {
		edit func(*Snapshot)
		want []expectation
	}{
		"no pod": {func(s *Snapshot) { s.Pods = s.Pods[:1] }, []expectation{{"node n2", Problem, AgentMissing}}},
		"no room for a pod": {func(s *Snapshot) {
			s.Pods[1].Spec.NodeName, s.Pods[1].Status = "", corev1.PodStatus{Phase: corev1.PodPending}
			s.Pods[1].Spec.Affinity = required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}},
			}})
		}, []expectation{{"node n2", Problem, AgentNotReady}}},
		"a node that is not selected": {func(s *Snapshot) {
			s.Pods = s.Pods[:1]
			s.Nodes[1].Labels["eks.amazonaws.com/compute-type"] = "fargate"
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.Agents.Spec.Template.Spec.Affinity = noFargate
			tt.edit(s)
			var got []expectation
			for _, examined := range Examine(s, Subject{}).Checks {
				for _, r := range examined.Results {
					if r.Level == Problem {
						got = append(got, expectation{r.Object, r.Level, r.Cause})
					}
				}
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(expectation{})); diff != "" {
				t.Errorf("problems mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTerminatingClaimNamesItsPods(t *testing.T) {
	s := healthy(t)
	use(s)
	deleted := ago(time.Minute)
	s.Claims[0].DeletionTimestamp = &deleted
	d := Examine(s, dataSubject)
	if d.Cause == nil || d.Cause.Cause != ClaimTerminating || !strings.HasSuffix(d.Cause.Message, ": user") {
		t.Errorf("%+v", d)
	}
}

func heldBy(reason string) status.Condition {
	return status.Condition{Reason: reason, Message: "…", Since: now.Add(-time.Minute)}
}

// TestDoctorKeepsToItsSubject: problems elsewhere are not listed.
func TestDoctorKeepsToItsSubject(t *testing.T) {
	s := healthy(t)
	use(s)
	pending(s)          // a claim that the manager ignores
	s.Pods = s.Pods[1:] // no agent on n1
	s.Agents.Status.NumberReady = 1
	bad := target()
	bad.Port = 20491
	setTable(s, ports.Table{Targets: map[string]ports.Target{testFS: target(), "fs-bad": bad}})
	fileSystemProblem(s, "fs-bad", heldBy(wellknown.EventFileSystemUnusable))
	tests := map[string]struct {
		subject  Subject
		problems []string // objects
	}{
		"a bound claim":    {dataSubject, nil},
		"another claim":    {newClaimSubject, []string{"claim team/new"}},
		"its pod":          {podSubject, nil},
		"a node":           {subjectOf(KindNode, "n1"), []string{"node n1"}},
		"another node":     {subjectOf(KindNode, "n2"), nil},
		"a file system":    {subjectOf(KindFileSystem, "fs-bad"), []string{"file system fs-bad"}},
		"another one":      {subjectOf(KindFileSystem, testFS), nil},
		"the installation": {Subject{}, []string{"claim team/new", "file system fs-bad", "node n1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := Examine(s, tt.subject)
			var objects []string
			for _, r := range of(d.Checks, Problem) {
				objects = append(objects, r.Object)
			}
			if diff := cmp.Diff(tt.problems, objects); diff != "" || len(d.Checks) < 5 {
				t.Errorf("problems mismatch (-want +got):\n%s%+v", diff, d)
			}
		})
	}
}

// TestDoctorOfASubjectOmitsDeletedVolumes: the events of these quote claims of other namespaces.
func TestDoctorOfASubjectOmitsDeletedVolumes(t *testing.T) {
	s := healthy(t)
	for _, name := range []string{"pvc-1", "pvc-2"} {
		addEvent(s, eventComponent, corev1.ObjectReference{Kind: "PersistentVolume", Name: name}, wellknown.EventVolumeDeleteSkipped, "claim other/secret has it", time.Minute)
	}
	for _, subject := range []Subject{dataSubject, newClaimSubject, podSubject, subjectOf(KindNode, "n1"), subjectOf(KindFileSystem, testFS)} {
		if text := printed(t, "", Examine(s, subject)); strings.Contains(text, "other/secret") {
			t.Errorf("the diagnosis of %s has a volume of another claim:\n%s", subject, text)
		}
	}
	if text := printed(t, "", Examine(s, Subject{})); strings.Count(text, "other/secret") != 2 || !strings.Contains(text, " 2 notes, ") {
		t.Errorf("the diagnosis of the installation:\n%s", text)
	}
}

func TestDiagnosisSaysWhatWasChecked(t *testing.T) {
	s := healthy(t)
	use(s)
	text := printed(t, "", Examine(s, dataSubject))
	for _, want := range []string{
		"claim team/data: no problem found", "claims          claim team/data: bound to pvc-" + boundUID,
		"manager         deployment efs-manager: 2 of 2 replicas", "file systems    file system " + testFS + ": port 20490",
		"agents          node n2: agent agent-n2 is ready",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	s.NodeTunnels[1].Status.Tunnels = []v1alpha1.Tunnel{{Name: testFS, Port: 20490, InUse: true, Lanes: 5}, {Name: "one", InUse: true}}
	text = printed(t, "", Examine(s, dataSubject))
	if want := "agent agent-n2 is ready; 5 lanes to " + testFS + " on port 20490\n"; !strings.Contains(text, want) {
		t.Errorf("it lacks %q:\n%s", want, text)
	}
	s.Pods = s.Pods[:1]
	text = printed(t, "", Examine(s, Subject{}))
	for _, want := range []string{
		"the installation: 1 problem; cause: AgentMissing (node n2)\n", "agents          1 problem, 1 ok", "PROBLEM node n2: AgentMissing\n", "  do: kubectl -n efs-stunnel describe daemonset",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	s = healthy(t)
	pending(s).Annotations = nil
	s.Classes, s.Unread = nil, []Unread{{Verb: "list", Resource: "storageclasses.storage.k8s.io"}}
	if d := Examine(s, newClaimSubject); d.Level != Unknown {
		t.Errorf("a claim of an unreadable class: %+v", d)
	}
	s = healthy(t)
	s.Nodes, s.Unread = nil, []Unread{{Verb: "list", Resource: "nodes"}}
	d := Examine(s, dataSubject)
	if text := printed(t, "", d); d.Level != Unknown || !strings.Contains(text, "you may not read everything") {
		t.Errorf("%s: %s", d.Level, text)
	}
}

func TestHostileObjectsAreHarmlessInADiagnosis(t *testing.T) {
	for _, format := range append(printing.Formats(), "") {
		expectHarmless(t, "diagnosis "+format, printed(t, format, Examine(hostile(t), Subject{})))
		expectHarmless(t, "subject "+format, printed(t, format, Examine(hostile(t), subjectOf(KindNode, "x\x1b[2J\nFAKE\xff"))))
	}
}
