package inspect

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// row is a row of a table of docs/reference, and what doctor says in its state.
type row struct {
	state   string // the row's first cell
	subject Subject
	edit    func(*testing.T, *Snapshot)
	want    expectation // the zero value: there is no cause
}

// TestDoctorNamesTheCauseOfEachRow goes through the tables of docs/reference: a state that is added
// there needs a row here. A state may have several rows.
func TestDoctorNamesTheCauseOfEachRow(t *testing.T) {
	for page, rows := range map[string][]row{"claim-states.md": claimRows(), "failures.md": faultRows()} {
		text, err := os.ReadFile("../../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		var tested []string
		for _, r := range rows {
			tested = append(tested, r.state)
			t.Run(page+"/"+r.state, func(t *testing.T) {
				s := healthy(t)
				r.edit(t, s)
				var got expectation
				if cause := Examine(s, r.subject).Cause; cause != nil {
					got = expectation{cause.Object, cause.Level, cause.Cause}
					cause.expectAdvice(t)
				}
				if diff := cmp.Diff(r.want, got, cmp.AllowUnexported(expectation{})); diff != "" {
					t.Errorf("cause mismatch (-want +got):\n%s", diff)
				}
			})
		}
		if diff := cmp.Diff(firstCells(string(text)), slices.Compact(tested)); diff != "" {
			t.Errorf("%s: rows mismatch (-docs +test):\n%s", page, diff)
		}
	}
}

// firstCells returns the first cells of the rows of a page's only table.
func firstCells(text string) (cells []string) {
	for line := range strings.Lines(text) {
		if cell, ok := strings.CutPrefix(line, "| "); ok {
			cell, _, _ = strings.Cut(cell, " | ")
			cells = append(cells, cell)
		}
	}
	return cells[min(len(cells), 1):] // without the heading
}

// reported is claim team/new, of which the manager says something.
func reported(cause Cause) func(*testing.T, *Snapshot) {
	return func(_ *testing.T, s *Snapshot) { says(pending(s), cause, "…") }
}

func claimRows() []row {
	const claim, volume = "claim team/new", "volume pvc-" + boundUID
	return []row{
		{"claim `Pending`, no annotation `volume.kubernetes.io/storage-provisioner`", newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s).Annotations = nil
		}, expectation{claim, Note, WaitsForCluster}},
		{"claim `Pending`, no annotation `volume.kubernetes.io/storage-provisioner`", newClaimSubject, func(_ *testing.T, s *Snapshot) {
			mode := storagev1.VolumeBindingWaitForFirstConsumer
			s.Classes[0].VolumeBindingMode = &mode
			pending(s).Annotations = nil
		}, expectation{claim, Note, WaitsForConsumer}},
		{
			"`Pending`, `Provisioning`: the next mount Job …", newClaimSubject,
			reported(status.WaitsForJob), expectation{claim, Note, status.WaitsForJob},
		},
		{"`Pending`, `ProvisioningFailed`, annotation `efs-stunnel.gnuthought.com/rejected`", newClaimSubject, func(_ *testing.T, s *Snapshot) {
			reject(pending(s))
		}, expectation{claim, Problem, status.ClaimRejected}},
		{
			"`Pending`, `ProvisioningFailed`: waiting: …", newClaimSubject,
			reported(status.WaitsForFileSystem), expectation{claim, Problem, status.WaitsForFileSystem},
		},
		{
			"`Pending`, `ProvisioningFailed`: asking the scheduler for another node", newClaimSubject,
			reported(status.WaitsForOtherNode), expectation{claim, Problem, status.WaitsForOtherNode},
		},
		{"`Pending`, `Provisioning`: Job … makes directory …", newClaimSubject, func(t *testing.T, s *Snapshot) {
			inJob(t, s)
		}, expectation{claim, Note, status.DirectoryIsMade}},
		{"`Pending`, `ProvisioningFailed`: Job …: …", newClaimSubject, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			waitsForMount(s, pod, "MountVolume.SetUp failed: mount failed: exit status 32\nOutput: mount.nfs: Connection refused")
			says(s.Claims[2], status.NoMountJob, "…")
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, "MountRefused"}},
		{
			"`Pending`, `ProvisioningFailed`: no mount Job can begin: …", newClaimSubject,
			reported(status.NoMountJob), expectation{claim, Problem, status.NoMountJob},
		},
		{"`Pending`, `ProvisioningFailed`: Job … could not make the directory", newClaimSubject, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			end(pod, 0, string(operations.Report{Results: []operations.Result{{State: operations.Failed, Reason: operations.PathTaken, Message: "taken"}}}.Encode()))
			says(s.Claims[2], status.SetupFailed, "…")
		}, expectation{claim, Problem, status.SetupFailed}},
		{
			"`Pending`, `ProvisioningFailed`: waiting: claim …, which is to be copied, …", newClaimSubject,
			reported(status.WaitsForSource), expectation{claim, Problem, status.WaitsForSource},
		},
		{"`Pending`, `Provisioning`: Job … copies claim …", newClaimSubject, func(t *testing.T, s *Snapshot) {
			inCloneJob(t, s)
		}, expectation{claim, Note, status.VolumeIsCopied}},
		{
			"`Pending`, `Provisioning`: Job … copies claim …", newClaimSubject,
			reported(status.WaitsForJob), expectation{claim, Note, status.WaitsForJob},
		},
		{
			"`Pending`, `ProvisioningFailed`: Job … could not copy claim …", newClaimSubject,
			reported(status.CloneFailed), expectation{claim, Problem, status.CloneFailed},
		},
		{"`Pending`, `ProvisioningFailed`: gave up after …", newClaimSubject, reported(status.GivenUp), expectation{claim, Problem, status.GivenUp}},
		{"`ProvisioningSucceeded`, volume `pvc-<uid>`", newClaimSubject, func(_ *testing.T, s *Snapshot) {
			pending(s).Spec.VolumeName = "pvc-" + newUID
		}, expectation{claim, Note, WaitsForBinder}},
		{"`Bound`", dataSubject, func(*testing.T, *Snapshot) {}, expectation{}},
		{"claim `Terminating`", dataSubject, func(_ *testing.T, s *Snapshot) {
			deleted := ago(time.Minute)
			s.Claims[0].DeletionTimestamp = &deleted
		}, expectation{"claim team/data", Note, ClaimTerminating}},
		{"volume `Released`, policy `Retain`", Subject{}, released(corev1.PersistentVolumeReclaimRetain), expectation{volume, Note, Retained}},
		{"volume `Released`, policy `Delete`", Subject{}, released(corev1.PersistentVolumeReclaimDelete), expectation{volume, Note, CleanupWaits}},
		{"the same, and the claim exists", dataSubject, func(_ *testing.T, s *Snapshot) {
			s.Claims[0].Spec.VolumeName, s.Volumes[0].Status.Phase = "another", corev1.VolumeReleased
		}, expectation{volume, Note, CleanupWaits}},
		{"the same, `VolumeFailedDelete`: … is not adopted", Subject{}, cleanupFailed(status.NotAdopted), expectation{volume, Problem, status.NotAdopted}},
		{"the same, `VolumeFailedDelete`", Subject{}, cleanupFailed(status.CleanupFailed), expectation{volume, Problem, status.CleanupFailed}},
		{"volume `Bound` again, or policy `Retain` now", Subject{}, released(corev1.PersistentVolumeReclaimRetain), expectation{volume, Note, Retained}},
		{"volume deleted", Subject{}, func(_ *testing.T, s *Snapshot) {
			s.Claims, s.Volumes = s.Claims[1:], s.Volumes[1:]
		}, expectation{}},
		{"volume deleted", dataSubject, func(_ *testing.T, s *Snapshot) {
			s.Claims, s.Volumes = s.Claims[1:], s.Volumes[1:]
		}, expectation{"claim team/data", Problem, ClaimMissing}},
		{"volume deleted, `VolumeDeleteSkipped` before", Subject{}, func(_ *testing.T, s *Snapshot) {
			addEvent(s, eventComponent, corev1.ObjectReference{Kind: "PersistentVolume", Name: s.Volumes[0].Name}, wellknown.EventVolumeDeleteSkipped, "another volume owns it", time.Minute)
			s.Claims, s.Volumes = s.Claims[1:], s.Volumes[1:]
		}, expectation{volume, Note, DirectoryStays}},
	}
}

// agentWaits has a container of the agent on node n1 crash.
func agentWaits(container string) func(*testing.T, *Snapshot) {
	return func(_ *testing.T, s *Snapshot) {
		s.Pods[0].Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		}}}
	}
}

func tunnel(reason string) func(*testing.T, *Snapshot) {
	return func(_ *testing.T, s *Snapshot) {
		if reason == wellknown.EventTunnelUnhealthy {
			tunnelProblem(s, reason, "…", time.Minute)
		} else {
			nodeEvent(s, reason, "…", time.Minute)
		}
	}
}

func nodeFails(s *Snapshot) { s.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown }

func faultRows() []row {
	const (
		fs, table, node, lease = "file system " + testFS, "configmap efs-stunnel", "node n1", "lease efs-manager"
		manager                = "deployment efs-manager"
	)
	var all, n1, claim = Subject{}, subjectOf(KindNode, "n1"), newClaimSubject
	return []row{
		{"leading manager, killed or its node lost", all, func(_ *testing.T, s *Snapshot) { s.Lease.Spec.RenewTime.Time = now.Add(-time.Minute) }, expectation{lease, Problem, NoLeader}},
		{"leading manager, after SIGTERM", all, func(_ *testing.T, s *Snapshot) { *s.Lease.Spec.HolderIdentity = "" }, expectation{lease, Problem, NoLeader}},
		{"standby manager", all, func(_ *testing.T, s *Snapshot) { s.Manager.Status.ReadyReplicas = 1 }, expectation{manager, Problem, ManagerNotReady}},
		{"both managers", claim, func(_ *testing.T, s *Snapshot) {
			pending(s)
			s.Lease, s.Manager.Status.ReadyReplicas = nil, 0
		}, expectation{manager, Problem, ManagerDown}},
		{"agent", n1, agentWaits("agent"), expectation{node, Problem, AgentNotReady}},
		{"one stunnel process", n1, tunnel(wellknown.EventTunnelUnhealthy), expectation{node, Problem, wellknown.EventTunnelUnhealthy}},
		{"supervisor", n1, agentWaits("supervisor"), expectation{node, Problem, AgentNotReady}},
		{"agent pod, replaced by a rollout", all, func(_ *testing.T, s *Snapshot) { s.Agents.Status.UpdatedNumberScheduled = 1 }, expectation{"agents", Note, Rollout}},
		{"agent pod, deleted or evicted", n1, func(_ *testing.T, s *Snapshot) { s.Pods = s.Pods[1:] }, expectation{node, Problem, AgentMissing}},
		{"node", n1, func(_ *testing.T, s *Snapshot) { nodeFails(s) }, expectation{node, Problem, NodeNotReady}},
		{"mount target that refuses, or takes no new connections", n1, tunnel(wellknown.EventTunnelMoved), expectation{node, Note, wellknown.EventTunnelMoved}},
		{"mount target that is silent", n1, tunnel(wellknown.EventTunnelMoved), expectation{node, Note, wellknown.EventTunnelMoved}},
		{"mount target that is silent", n1, tunnel(wellknown.EventTunnelRestarted), expectation{node, Note, wellknown.EventTunnelRestarted}},
		{"zone", all, func(t *testing.T, s *Snapshot) {
			nodeFails(s)
			tunnel(wellknown.EventTunnelMoved)(t, s)
		}, expectation{node, Problem, NodeNotReady}},
		{"all mount targets of a file system", claim, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			waitsForMount(s, pod, "MountVolume.SetUp failed: mount failed: exit status 32\nOutput: mount.nfs: Connection timed out")
			tunnel(wellknown.EventTunnelUnhealthy)(t, s)
		}, expectation{node, Problem, wellknown.EventTunnelUnhealthy}},
		// Gather fails, which TestGatherFailsWithoutAnApiserver holds. Afterwards there is no leader for a moment.
		{"apiserver", all, func(_ *testing.T, s *Snapshot) { *s.Lease.Spec.HolderIdentity = "" }, expectation{lease, Problem, NoLeader}},
		{"EFS API, or permissions to use it", claim, func(t *testing.T, s *Snapshot) {
			reported(status.WaitsForFileSystem)(t, s)
			tableProblem(s, wellknown.EventDiscoveryFailed, "AccessDenied", time.Minute)
		}, expectation{"installation efs-stunnel", Problem, wellknown.EventDiscoveryFailed}},
		{"ConfigMap `efs-stunnel` deleted", all, func(_ *testing.T, s *Snapshot) { s.Table = nil }, expectation{table, Problem, TableMissing}},
		{"ConfigMap unreadable", all, func(_ *testing.T, s *Snapshot) { s.Table.Data[wellknown.TargetsKey] = "x: [" }, expectation{table, Problem, TableUnreadable}},
		{"ConfigMap `efs-stunnel-view` deleted, damaged or late", all, func(*testing.T, *Snapshot) {}, expectation{}}, // agents read the table
		{"root volume or root claim deleted", subjectOf(KindFileSystem, testFS), func(_ *testing.T, s *Snapshot) { s.Volumes = s.Volumes[:1] }, expectation{fs, Problem, RootVolumeNotReady}},
		{"root volume or root claim deleted", subjectOf(KindFileSystem, testFS), func(_ *testing.T, s *Snapshot) { s.Claims = s.Claims[:1] }, expectation{fs, Problem, RootVolumeNotReady}},
		{"another installation in the cluster has the root volume", claim, func(t *testing.T, s *Snapshot) {
			reported(status.NoMountJob)(t, s)
			s.Claims[2].Spec.Selector = selectFileSystem()
			s.Volumes[1].Spec.ClaimRef.Namespace = "other"
		}, expectation{fs, Problem, RootVolumeConflict}},
		{
			"connection between worker and leader (leader killed, network policy)", claim,
			reported(status.WaitsForJob), expectation{"claim team/new", Note, status.WaitsForJob},
		},
		{"mount Job or its pod", claim, func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			end(pod, 137, "")
			says(s.Claims[2], status.SetupFailed, "…")
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, JobLost}},
		{"mount Job hangs on a dead mount", claim, func(t *testing.T, s *Snapshot) {
			job, pod := inJob(t, s)
			job.CreationTimestamp, pod.CreationTimestamp = ago(time.Hour), ago(time.Hour)
			says(s.Claims[2], status.SetupFailed, "…")
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, JobStuck}},
		{"clone Job or its pod", claim, func(t *testing.T, s *Snapshot) {
			pod := inCloneJob(t, s)
			end(pod, 137, "")
			says(s.Claims[2], status.CloneFailed, "…")
		}, expectation{"job efs-clone-" + testFS + "-00002", Problem, JobLost}},
		{"survey Job or its pod", all, func(_ *testing.T, s *Snapshot) {
			tableProblem(s, wellknown.EventSurveyFailed, "no", time.Minute)
		}, expectation{fs, Problem, wellknown.EventSurveyFailed}},
		{"StorageClass deleted", claim, func(_ *testing.T, s *Snapshot) {
			pending(s)
			s.Classes = nil
		}, expectation{"claim team/new", Problem, ClassMissing}},
		{"etcd restored from an old backup", dataSubject, func(_ *testing.T, s *Snapshot) { volumes.SetPort(s.Volumes[0], 20777) }, expectation{"volume pvc-" + boundUID, Problem, PortDiffers}},
	}
}
