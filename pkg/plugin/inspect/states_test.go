package inspect

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// expectation is one result of an installation.
type expectation struct {
	object string
	level  Level
	cause  Cause
}

// TestStatesOfClaims has what the rows of "The life of a claim" in docs/reference/claim-states.md do not distinguish.
func TestStatesOfClaims(t *testing.T) {
	const claim = "claim team/new"
	waits := func(s *Snapshot) {
		mode := storagev1.VolumeBindingWaitForFirstConsumer
		s.Classes[0].VolumeBindingMode = &mode
	}
	waiting := func(cause Cause) func(*testing.T, *Snapshot) {
		return func(_ *testing.T, s *Snapshot) { says(pending(s), cause, "…") }
	}
	tests := map[string]struct {
		edit func(*testing.T, *Snapshot)
		want expectation
	}{
		"it was created just now": {func(_ *testing.T, s *Snapshot) {
			pending(s).CreationTimestamp = ago(time.Second)
		}, expectation{claim, Note, WaitsForManager}},
		"the manager says nothing": {func(_ *testing.T, s *Snapshot) { pending(s) }, expectation{claim, Problem, ManagerSilent}},
		"Velero makes its volume": {func(_ *testing.T, s *Snapshot) {
			pending(s).Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"velero.io/dynamic-pv-restore": "x"}}
		}, expectation{claim, Note, WaitsForOther}},
		"a populator makes its volume": {func(_ *testing.T, s *Snapshot) {
			group := "example.com"
			pending(s).Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Thing", Name: "x"}
		}, expectation{claim, Note, WaitsForOther}},
		"rejected because of its class": {waiting(status.ClassRefused), expectation{claim, Problem, ClassRefused}},
		"its class was deleted": {func(_ *testing.T, s *Snapshot) {
			s.Classes = nil
			pending(s)
		}, expectation{claim, Problem, ClassMissing}},
		"its class is another provisioner's now": {func(_ *testing.T, s *Snapshot) {
			pending(s).Annotations[wellknown.AnnotationStorageProvisioner] = "example.com/other"
		}, expectation{claim, Problem, NotOurs}},
		"its file system is unknown": {func(_ *testing.T, s *Snapshot) {
			c := pending(s)
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.LabelFileSystemID: "fs-00000000"}}
			says(c, status.WaitsForFileSystem, "…")
		}, expectation{claim, Problem, FileSystemUnknown}},
		"the same, after the node was given back": {func(t *testing.T, s *Snapshot) {
			waits(s)
			waiting(status.WaitsForOtherNode)(t, s)
		}, expectation{claim, Problem, status.WaitsForOtherNode}},
		"the volume is refused":       {waiting(status.VolumeRefused), expectation{claim, Problem, status.VolumeRefused}},
		"a reason of a newer version": {waiting("SomethingNew"), expectation{claim, Problem, "SomethingNew"}},
		"a condition that is over": {func(_ *testing.T, s *Snapshot) {
			c := pending(s)
			says(c, status.SetupFailed, "…")
			c.Status.Conditions[0].Status = corev1.ConditionTrue
		}, expectation{claim, Problem, ManagerSilent}},
		"its volume is made, and the condition stays until it is bound": {func(t *testing.T, s *Snapshot) {
			c := pending(s)
			says(c, status.SetupFailed, "…")
			s.Volumes = append(s.Volumes, volumeOf(t, c))
		}, expectation{claim, Problem, status.SetupFailed}},
		"its volume is made": {func(t *testing.T, s *Snapshot) {
			s.Volumes = append(s.Volumes, volumeOf(t, pending(s)))
		}, expectation{claim, Note, WaitsForBinder}},
		"the Job's image is missing": {func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			setState(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}})
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, "ImagePullFailed"}},
		"the Job finds no node": {func(t *testing.T, s *Snapshot) {
			_, pod := inJob(t, s)
			pod.Spec.NodeName, pod.Status.ContainerStatuses = "", nil
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 Insufficient cpu."}}
		}, expectation{"job efs-mount-" + testFS + "-00007", Problem, "Unschedulable"}},
		"no replica leads": {func(_ *testing.T, s *Snapshot) {
			pending(s)
			s.Lease.Spec.HolderIdentity = nil
		}, expectation{claim, Problem, NoLeader}},
		"its volume was deleted": {func(_ *testing.T, s *Snapshot) {
			claim := pending(s)
			claim.Spec.VolumeName, claim.Status.Phase = "pvc-1", corev1.ClaimLost
		}, expectation{claim, Problem, ClaimLost}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(t, s)
			expect(t, s, tt.want)
		})
	}
}

func reject(claim *corev1.PersistentVolumeClaim) {
	says(claim, status.ClaimRejected, "access mode …")
}

// end has a Job's pod exit.
func end(pod *corev1.Pod, code int32, message string) {
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	setState(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: ago(time.Second)}})
}

// expect finds a result among those of all checks.
func expect(t *testing.T, s *Snapshot, want expectation) {
	t.Helper()
	for _, examined := range derive(s).examine() {
		for _, r := range examined.Results {
			if (expectation{r.Object, r.Level, r.Cause}) != want {
				continue
			}
			r.expectAdvice(t)
			return
		}
	}
	t.Errorf("%+v is not among %+v", want, derive(s).examine())
}

// expectAdvice holds that a result says what is the matter, and what to do about a problem.
func (r Result) expectAdvice(t *testing.T) {
	t.Helper()
	if r.Message == "" || r.Level == Problem && r.Remedy == "" {
		t.Errorf("%+v does not say what to do", r)
	}
}

// released has the claim of volume pvc-boundUID deleted.
func released(policy corev1.PersistentVolumeReclaimPolicy) func(*testing.T, *Snapshot) {
	return func(_ *testing.T, s *Snapshot) {
		s.Claims = s.Claims[1:]
		s.Volumes[0].Spec.PersistentVolumeReclaimPolicy, s.Volumes[0].Status.Phase = policy, corev1.VolumeReleased
	}
}

func cleanupFailed(cause Cause) func(*testing.T, *Snapshot) {
	return func(t *testing.T, s *Snapshot) {
		released(corev1.PersistentVolumeReclaimDelete)(t, s)
		s.Volumes[0].Annotations[wellknown.AnnotationProblem] = string(cause) + ": Job x: no"
	}
}

// TestReleasedVolumes has what else can happen to volumes without a claim.
func TestReleasedVolumes(t *testing.T) {
	tests := map[string]struct {
		edit func(*testing.T, *Snapshot)
		want expectation
	}{
		"a Job removes the directory": {func(t *testing.T, s *Snapshot) {
			released(corev1.PersistentVolumeReclaimDelete)(t, s)
			addJob(t, s, volumes.Cleanup(volumes.Read(s.Volumes[0], s.Provisioner), cluster))
		}, expectation{level: Note, cause: CleanupRuns}},
		"the worker of its setup waits for more": {func(t *testing.T, s *Snapshot) {
			addJob(t, s, setup(t, s.Claims[0]))
			released(corev1.PersistentVolumeReclaimDelete)(t, s)
		}, expectation{level: Note, cause: CleanupWaits}},
		"it was edited": {func(_ *testing.T, s *Snapshot) { s.Volumes[0].Spec.NFS.Path = "/elsewhere" }, expectation{level: Problem, cause: VolumeEdited}},
		"a mount option is harmful": {func(_ *testing.T, s *Snapshot) {
			s.Volumes[0].Spec.MountOptions = append(s.Volumes[0].Spec.MountOptions, "bg")
		}, expectation{level: Problem, cause: OptionHarmful}},
		"its port differs": {func(_ *testing.T, s *Snapshot) { volumes.SetPort(s.Volumes[0], 20777) }, expectation{level: Problem, cause: PortDiffers}},
		"it is an access point, whose port is its own":       {func(_ *testing.T, s *Snapshot) { onPoint(s, 20777) }, expectation{level: OK}},
		"it is an access point, whose port differs":          {func(_ *testing.T, s *Snapshot) { onPoint(s, 20778) }, expectation{level: Problem, cause: PortDiffers}},
		"it is an access point that the table does not have": {func(_ *testing.T, s *Snapshot) { onPoint(s, 0) }, expectation{level: Problem, cause: PortDiffers}},
		"it is a released access point": {func(t *testing.T, s *Snapshot) {
			t.Helper()
			onPoint(s, 20777)
			released(corev1.PersistentVolumeReclaimDelete)(t, s)
		}, expectation{level: Note, cause: CleanupWaits}},
		"its file system left the table": {func(_ *testing.T, s *Snapshot) {
			s.Volumes[0].Annotations[wellknown.AnnotationFileSystemID] = "fs-00000000"
			s.Volumes[0].Labels[wellknown.LabelFileSystemID] = "fs-00000000"
		}, expectation{level: Problem, cause: NoFileSystemNow}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(t, s)
			tt.want.object = "volume pvc-" + boundUID
			expect(t, s, tt.want)
		})
	}
}

// onPoint makes the volume one of an access point with port 20777, and gives it one in the table unless that is 0.
func onPoint(s *Snapshot, inTable int) {
	const id, port = "fsap-0123456789abcdef0", 20777
	volumes.OnPoint(s.Volumes[0], id, port, false)
	withTarget(s, func(t *ports.Target) {
		if inTable != 0 {
			t.AccessPoints = map[string]ports.AccessPoint{id: {Port: inTable}}
		}
	})
}
