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
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
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
)

// silent bounds the time in which the manager says nothing about a claim: its condition begins after ten seconds.
const silent = 90 * time.Second

// isClaimOurs reports whether a claim requests a volume of this provisioner, or has one.
func (f *facts) isClaimOurs(claim *corev1.PersistentVolumeClaim) bool {
	_, ok := f.classes[volumes.ClassName(claim)]
	return ok || volumes.AskedProvisioner(claim) == f.Provisioner
}

// isUsers reports whether a claim of this provisioner is a user's, and no root claim.
func (f *facts) isUsers(claim *corev1.PersistentVolumeClaim) bool {
	return f.isClaimOurs(claim) && !f.isRoot(claim)
}

func (f *facts) checkClaims() (results []Result) {
	for _, claim := range keep(f.Claims, f.isUsers) {
		result := f.claimState(claim)
		result.Object, result.fileSystem = named(KindClaim, claim.Namespace, claim.Name), f.fileSystemOf(claim)
		result.class = volumes.ClassName(claim)
		results = append(results, result)
	}
	return results
}

// fileSystemOf returns where a claim's directory is or will be, "" while that is not known.
func (f *facts) fileSystemOf(claim *corev1.PersistentVolumeClaim) string {
	selected, shared := "", ""
	if claim.Spec.Selector != nil {
		selected = claim.Spec.Selector.MatchLabels[wellknown.LabelFileSystemID]
	}
	if object := f.sharedVolumeOf(claim); object != nil {
		shared = object.Spec.FileSystemID
	}
	return cmp.Or(f.volumes[claim.Spec.VolumeName].FileSystemID, shared, f.attempts[volumes.VolumeName(claim.UID)].outcome.Name.FileSystemID,
		selected, f.classes[volumes.ClassName(claim)].class.DefaultFileSystemID)
}

// claimState judges the life of a claim in docs/reference/claim-states.md. While the manager works for the claim, its
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
		return problem(ClaimLost, "", fmt.Sprintf("its volume %s was deleted; the data stays", name))
	case claim.Status.Phase == corev1.ClaimBound:
		return cmp.Or(f.waitsForMount(reading.NameOf(claim)), Fine("", "bound to %s", name))
	case name != "" || f.volumes[own].Object != nil && condition.Reason == "":
		return note(WaitsForBinder, "", "the cluster is binding it to volume "+cmp.Or(name, own))
	case maker != "":
		return note(WaitsForOther, "", maker+" makes its volume, so the manager makes none")
	case condition.Reason != "":
		return f.ofClaimCondition(claim, condition)
	case !known && !f.lacks(classResource):
		return problem(ClassMissing, "", fmt.Sprintf("there is no storage class %q of provisioner %s", volumes.ClassName(claim), f.Provisioner))
	case class.waitsForPod() && volumes.SelectedNode(claim) == "":
		return note(WaitsForConsumer, "", "its class waits for the first pod that uses it, and for the node that the scheduler selects")
	case asked == "":
		return note(WaitsForCluster, "", "the cluster's controller-manager has not asked for a volume yet")
	case asked != f.Provisioner:
		return problem(NotOurs, "", "the cluster has asked provisioner "+asked+", as the class was replaced")
	case !f.mayLead():
		return problem(NoLeader, "", "no manager leads, so nothing is provisioned")
	case f.Now.Sub(claim.CreationTimestamp.Time) < silent:
		return note(WaitsForManager, "", "the manager has not reported anything yet")
	}
	return problem(ManagerSilent, "", "the manager has reported nothing for "+age(f.Now, claim.CreationTimestamp.Time))
}

func (c storedClass) waitsForPod() bool {
	return c.object != nil && c.object.VolumeBindingMode != nil && *c.object.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// conditionOf returns the condition in which the manager says why a claim has no volume, the zero value for none.
func conditionOf(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeClaimCondition {
	return first(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == wellknown.ConditionProvisioned && c.Status == corev1.ConditionFalse
	})
}

func (f *facts) ofClaimCondition(claim *corev1.PersistentVolumeClaim, c corev1.PersistentVolumeClaimCondition) Result {
	result, id := problem(Cause(c.Reason), "", c.Message), f.fileSystemOf(claim)
	switch {
	case status.IsProgress(c.Reason):
		result = note(result.Cause, "", c.Message)
	case result.Cause == status.WaitsForFileSystem && id != "" && f.Table != nil && f.tableErr == nil && !f.isListed(id):
		result.Cause = FileSystemUnknown
	}
	return f.lasting(result, c.LastTransitionTime.Time)
}

func (f *facts) terminating(claim *corev1.PersistentVolumeClaim) Result {
	var names []string
	for _, pod := range f.usersOf(reading.NameOf(claim)) {
		names = append(names, pod.Name)
	}
	return note(ClaimTerminating, "", join("it is deleted when the last pod that uses it ends", strings.Join(names, ", ")))
}

// waitsForMount is about a claim of which a pod cannot mount the volume. It returns the zero value for others.
func (f *facts) waitsForMount(claim types.NamespacedName) (r Result) {
	for _, pod := range f.usersOf(claim) {
		event := first(f.events[eventKey{"Pod", pod.Namespace, pod.Name}], func(e corev1.Event) bool { return e.Reason == "FailedMount" })
		if event.Reason != "" && pod.Status.Phase == corev1.PodPending {
			r = problem(PodsWaitForMount, "", fmt.Sprintf("pod %s on node %s: %s", pod.Name, pod.Spec.NodeName, event.Message))
			r.node, r.Remedy = pod.Spec.NodeName, "kubectl efs-stunnel doctor node "+pod.Spec.NodeName
			return r
		}
	}
	return r
}

func (f *facts) checkClasses() (results []Result) {
	for _, name := range slices.Sorted(maps.Keys(f.classes)) {
		result := Fine(named(KindClass, name), "its parameters are valid")
		if err := f.classes[name].err; err != nil {
			result = problem(ClassRefused, result.Object, err.Error())
		}
		results = append(results, result)
	}
	if len(results) == 0 && !f.lacks(classResource) {
		results = append(results, note(NoClass, "storage classes", "there is no class of provisioner "+f.Provisioner))
	}
	return results
}

// foreign returns why the manager ignores a claim.
func (f *facts) foreign(claim *corev1.PersistentVolumeClaim) Result {
	name := volumes.ClassName(claim)
	class := first(f.Classes, func(class *storagev1.StorageClass) bool { return class.Name == name })
	switch {
	case f.lacks(classResource):
		return Result{Level: Unknown, Cause: RightMissing, Message: "without a right to list storage classes, it is not known whether it is of provisioner " + f.Provisioner}
	case claim.Spec.VolumeName != "":
		return note(NotOurs, "", "its volume "+claim.Spec.VolumeName+" was not made by provisioner "+f.Provisioner)
	case name == "":
		return f.classless(claim)
	case class == nil:
		return problem(ClassMissing, "", fmt.Sprintf("there is no storage class %q", name))
	}
	return problem(NotOurs, "", fmt.Sprintf("storage class %q is of another provisioner than %s", name, f.Provisioner))
}

const annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"

// classless is about a claim that names no storage class.
func (f *facts) classless(claim *corev1.PersistentVolumeClaim) Result {
	_, old := claim.Annotations[wellknown.AnnotationStorageClass]
	class := first(f.Classes, func(c *storagev1.StorageClass) bool {
		return c.Annotations[annotationDefaultClass] == wellknown.ValueTrue
	})
	switch {
	case old || claim.Spec.StorageClassName != nil:
		return note(NotOurs, "", `its storage class is "", so it is only bound to a volume without a class`)
	case class != nil:
		return note(WaitsForCluster, "", "it names no storage class; the cluster gives it the default one, "+class.Name)
	}
	return problem(NoDefaultClass, "", "it names no storage class, and the cluster has no default one")
}
