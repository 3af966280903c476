package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about claims. Those of their condition Provisioned have the condition's reason.
const (
	ClaimMissing     Cause = "ClaimMissing"
	NotOurs          Cause = "NotOurs"
	ClassMissing     Cause = "ClassMissing"
	ClassRefused     Cause = status.ClassRefused
	NoClass          Cause = "NoClass"
	ClaimTerminating Cause = "ClaimTerminating"
	ClaimLost        Cause = "ClaimLost"
	WaitsForConsumer Cause = "WaitsForConsumer"
	WaitsForCluster  Cause = "WaitsForCluster"
	WaitsForOther    Cause = "WaitsForOther"
	NoDefaultClass   Cause = "NoDefaultClass"
	WaitsForBinder   Cause = "WaitsForBinder"
	WaitsForManager  Cause = "WaitsForManager"
	ManagerSilent    Cause = "ManagerSilent"
	PodsWaitForMount Cause = "PodsWaitForMount"
	VolumeMissing    Cause = "VolumeMissing"
)

// silent is how long the manager may say nothing about a claim: a minute while a Job makes its directory.
const silent = 90 * time.Second

func (f *facts) checkClaims() []Result {
	var results []Result
	for _, claim := range f.Claims {
		if f.isClaimOurs(claim) && !f.isRoot(claim) {
			results = append(results, f.checkClaim(claim))
		}
	}
	return results
}

func (f *facts) checkClaim(claim *corev1.PersistentVolumeClaim) Result {
	result := f.claimState(claim)
	result.Object = "claim " + claim.Namespace + "/" + claim.Name
	result.fileSystem = f.fileSystemOf(claim)
	return result.ofClaim(claim.Namespace, claim.Name)
}

// fileSystemOf is where a claim's directory is or will be, "" while that is not known.
func (f *facts) fileSystemOf(claim *corev1.PersistentVolumeClaim) string {
	if volume := f.volumes[claim.Spec.VolumeName]; volume.FileSystemID != "" {
		return volume.FileSystemID
	}
	if shared := f.sharedVolumeOf(claim); shared != nil {
		return shared.Spec.FileSystemID
	}
	if j, ok := f.attempt(volumes.VolumeName(claim.UID)); ok {
		return j.status.Name.FileSystemID
	}
	if claim.Spec.Selector != nil && claim.Spec.Selector.MatchLabels[wellknown.LabelFileSystemID] != "" {
		return claim.Spec.Selector.MatchLabels[wellknown.LabelFileSystemID]
	}
	return f.classes[volumes.ClassName(claim)].class.DefaultFileSystemID
}

// claimState is the life of a claim in docs/reference/claim-states.md. While the manager works for the claim, its
// condition says how far that is.
func (f *facts) claimState(claim *corev1.PersistentVolumeClaim) Result {
	name, asked, maker := claim.Spec.VolumeName, volumes.AskedProvisioner(claim), volumes.OtherMaker(claim)
	own := volumes.VolumeName(claim.UID)
	class, known := f.classes[volumes.ClassName(claim)]
	condition := conditionOf(claim)
	switch {
	case claim.DeletionTimestamp != nil:
		return f.terminating(claim)
	case claim.Status.Phase == corev1.ClaimLost:
		return problem(ClaimLost, "", fmt.Sprintf("its volume %s was deleted; the data stays", name),
			"create a claim with the same path (namespace, class and volume_name), which gets the data")
	case claim.Status.Phase == corev1.ClaimBound:
		if result, ok := f.waitsForMount(nameOf(claim)); ok {
			return result
		}
		return fine("", "bound to %s", name)
	case name != "" || f.volumes[own].Object != nil && condition == nil:
		return note(WaitsForBinder, "", "the cluster is binding it to volume "+cmp.Or(name, own))
	case maker != "":
		return note(WaitsForOther, "", maker+" makes its volume, so the manager makes none")
	case condition != nil:
		return f.ofClaimCondition(claim, *condition)
	case !known && !f.lacks("storageclasses.storage.k8s.io"):
		return problem(ClassMissing, "", fmt.Sprintf("there is no storage class %q of provisioner %s", volumes.ClassName(claim), f.Provisioner),
			"create the class again: kubectl get storageclass")
	case class.waitsForPod() && volumes.SelectedNode(claim) == "":
		return note(WaitsForConsumer, "", "its class waits for the first pod that uses it, and for the node that the scheduler selects")
	case asked == "":
		return note(WaitsForCluster, "", "the cluster's controller-manager has not asked for a volume yet")
	case asked != f.Provisioner:
		return problem(NotOurs, "", "the cluster has asked provisioner "+asked, "the class was replaced: create a new claim")
	}
	return f.unreported(claim)
}

func (c storedClass) waitsForPod() bool {
	return c.object != nil && c.object.VolumeBindingMode != nil && *c.object.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// conditionOf returns the condition in which the manager says why a claim has no volume, nil if there is none.
func conditionOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == wellknown.ConditionProvisioned && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

func (f *facts) ofClaimCondition(claim *corev1.PersistentVolumeClaim, c corev1.PersistentVolumeClaimCondition) Result {
	message := f.lasting(c.Message, c.LastTransitionTime.Time)
	id := f.fileSystemOf(claim)
	switch {
	case status.IsProgress(c.Reason):
		return note(Cause(c.Reason), "", message)
	case c.Reason == status.WaitsForFileSystem && id != "" && f.Table != nil && f.tableErr == nil && !f.isListed(id):
		return problem(FileSystemUnknown, "", message, findFileSystem)
	}
	return problem(Cause(c.Reason), "", message, cmp.Or(status.CauseRemedy(c.Reason), "do what the message says"))
}

// findFileSystem is what to do about a file system that the table lacks.
const findFileSystem = "check that it exists in this account and region, and that --file-system-ids, --file-system-tags and --vpc-id of the manager allow it"

// unreported is about a claim of which the manager has said nothing.
func (f *facts) unreported(claim *corev1.PersistentVolumeClaim) Result {
	pods := fmt.Sprintf("-l %s=%s", wellknown.LabelProgram, wellknown.ProgramManager)
	a, ok := f.attempt(volumes.VolumeName(claim.UID))
	switch waited := f.Now.Sub(claim.CreationTimestamp.Time); {
	case !f.mayLead():
		return problem(NoLeader, "", "no manager leads, so nothing is provisioned", fmt.Sprintf("kubectl -n %s get pods %s", f.Namespace, pods))
	case ok && a.operation.Copies() && a.status.State == mountjobs.Running:
		return note(status.VolumeIsCopied, "", fmt.Sprintf("Job %s copies claim %s%s", a.job.Name, a.operation.SourceClaim, onNode(a.status.Node)))
	case ok && a.operation.AddsOwner() && a.status.State == mountjobs.Running:
		return note(status.DirectoryIsMade, "", fmt.Sprintf("Job %s makes its directory%s", a.job.Name, onNode(a.status.Node)))
	case waited < silent:
		return note(WaitsForManager, "", "the manager has not reported anything yet")
	}
	return problem(ManagerSilent, "", fmt.Sprintf("the manager has reported nothing for %s", age(f.Now, claim.CreationTimestamp.Time)),
		fmt.Sprintf("kubectl -n %s logs %s --prefix --tail=100", f.Namespace, pods))
}

func (f *facts) terminating(claim *corev1.PersistentVolumeClaim) Result {
	text := "it is deleted when the last pod that uses it ends"
	if users := f.usersOf(nameOf(claim)); len(users) > 0 {
		var names []string
		for _, pod := range users {
			names = append(names, pod.Name)
		}
		text += ": " + strings.Join(names, ", ")
	}
	return note(ClaimTerminating, "", text)
}

func nameOf(claim *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

func (f *facts) usersOf(claim types.NamespacedName) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.Users), func(pod *corev1.Pod) bool { return !uses(pod, claim) })
}

// waitsForMount is about a claim of which a pod cannot mount the volume.
func (f *facts) waitsForMount(claim types.NamespacedName) (Result, bool) {
	for _, pod := range f.usersOf(claim) {
		for _, event := range f.events[eventKey{"Pod", pod.Namespace, pod.Name}] {
			if event.Reason == "FailedMount" && pod.Status.Phase == corev1.PodPending {
				return problem(PodsWaitForMount, "", fmt.Sprintf("pod %s on node %s: %s", pod.Name, pod.Spec.NodeName, event.Message),
					"kubectl efs-stunnel doctor node "+pod.Spec.NodeName), true
			}
		}
	}
	return Result{}, false
}

func (f *facts) checkClasses() []Result {
	var results []Result
	for _, name := range slices.Sorted(maps.Keys(f.classes)) {
		if err := f.classes[name].err; err != nil {
			results = append(results, problem(ClassRefused, "storage class "+name, err.Error(), status.CauseRemedy(status.ClassRefused)).ofClass(name))
			continue
		}
		results = append(results, fine("storage class "+name, "its parameters are valid").ofClass(name))
	}
	if len(results) == 0 && !f.lacks("storageclasses.storage.k8s.io") {
		results = append(results, note(NoClass, "storage classes", "there is no class of provisioner "+f.Provisioner))
	}
	return results
}
