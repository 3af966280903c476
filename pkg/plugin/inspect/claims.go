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

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about claims.
const (
	ClaimMissing       Cause = "ClaimMissing"
	NotOurs            Cause = "NotOurs"
	ClassMissing       Cause = "ClassMissing"
	ClassRefused       Cause = "ClassRefused"
	NoClass            Cause = "NoClass"
	ClaimTerminating   Cause = "ClaimTerminating"
	ClaimLost          Cause = "ClaimLost"
	ClaimRejected      Cause = "ClaimRejected"
	GivenUp            Cause = "GivenUp"
	WaitsForConsumer   Cause = "WaitsForConsumer"
	WaitsForCluster    Cause = "WaitsForCluster"
	WaitsForOther      Cause = "WaitsForOther"
	NoDefaultClass     Cause = "NoDefaultClass"
	WaitsForBinder     Cause = "WaitsForBinder"
	WaitsForJob        Cause = "WaitsForJob"
	WaitsForFileSystem Cause = status.WaitsForFileSystem
	WaitsForOtherNode  Cause = status.WaitsForOtherNode
	DirectoryIsMade    Cause = "DirectoryIsMade"
	SetupFailed        Cause = status.SetupFailed
	WaitsForSource     Cause = status.WaitsForSource
	VolumeIsCopied     Cause = "VolumeIsCopied"
	CloneFailed        Cause = status.CloneFailed
	NoMountJob         Cause = status.NoMountJob
	VolumeRefused      Cause = status.VolumeRefused
	ProvisioningFailed Cause = wellknown.EventProvisioningFailed
	WaitsForManager    Cause = "WaitsForManager"
	ManagerSilent      Cause = "ManagerSilent"
	PodsWaitForMount   Cause = "PodsWaitForMount"
	VolumeMissing      Cause = "VolumeMissing"
)

// silent is how long the manager may say nothing about a claim.
const silent = 30 * time.Second

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

// claimState is the life of a claim in docs/reference/claim-states.md, as far as objects show it: the first that
// holds.
func (f *facts) claimState(claim *corev1.PersistentVolumeClaim) Result {
	for _, state := range []func(*corev1.PersistentVolumeClaim) (Result, bool){
		f.terminating, f.bound, f.otherMaker, f.rejected, f.unaccepted, f.notAsked, f.unlisted, f.inJob, f.leaderless, f.reported,
	} {
		if result, ok := state(claim); ok {
			return result
		}
	}
	waited := f.Now.Sub(claim.CreationTimestamp.Time)
	if waited < silent || f.lacks("events") {
		return note(WaitsForManager, "", "the manager has not reported anything yet")
	}
	return problem(ManagerSilent, "", fmt.Sprintf("the manager has reported nothing for %s", age(f.Now, claim.CreationTimestamp.Time)),
		fmt.Sprintf("kubectl -n %s logs -l %s=%s --prefix --tail=100", f.Namespace, wellknown.LabelProgram, wellknown.ProgramManager))
}

func (f *facts) terminating(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	if claim.DeletionTimestamp == nil {
		return Result{}, false
	}
	text := "it is deleted when the last pod that uses it ends"
	if users := f.usersOf(nameOf(claim)); len(users) > 0 {
		var names []string
		for _, pod := range users {
			names = append(names, pod.Name)
		}
		text += ": " + strings.Join(names, ", ")
	}
	return note(ClaimTerminating, "", text), true
}

func nameOf(claim *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

func (f *facts) usersOf(claim types.NamespacedName) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.Users), func(pod *corev1.Pod) bool { return !uses(pod, claim) })
}

func (f *facts) bound(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	switch name := claim.Spec.VolumeName; {
	case claim.Status.Phase == corev1.ClaimLost:
		return problem(ClaimLost, "", fmt.Sprintf("its volume %s was deleted; the data stays", name),
			"create a claim with the same path (namespace, class and volume_name), which gets the data"), true
	case name == "":
		return Result{}, false
	case claim.Status.Phase != corev1.ClaimBound:
		return note(WaitsForBinder, "", "the cluster is binding it to volume "+name), true
	}
	if result, ok := f.waitsForMount(nameOf(claim)); ok {
		return result, true
	}
	return fine("", "bound to %s", claim.Spec.VolumeName), true
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

func (f *facts) rejected(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	if claim.Annotations[wellknown.AnnotationRejected] != wellknown.ValueTrue {
		return Result{}, false
	}
	reason := claim.Annotations[wellknown.AnnotationRejectReason]
	if claim.Annotations[wellknown.AnnotationGivenUp] != "" {
		return problem(GivenUp, "", reason, "correct the cause that the message names, then edit the claim or its class"), true
	}
	if f.classes[volumes.ClassName(claim)].err != nil {
		return problem(ClassRefused, "", reason, createClass), true
	}
	return problem(ClaimRejected, "", reason, "do what the message says; selector and class of a claim cannot be edited: create a new claim"), true
}

// otherMaker is about a claim that the manager leaves to another program.
func (f *facts) otherMaker(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	maker := volumes.OtherMaker(claim)
	if maker == "" {
		return Result{}, false
	}
	return note(WaitsForOther, "", maker+" makes its volume, so the manager makes none"), true
}

const createClass = "create a class with what the message says; parameters of a class cannot be edited"

// unaccepted is about claims that the manager will refuse, or not provision.
func (f *facts) unaccepted(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	if f.lacks("storageclasses.storage.k8s.io") {
		return Result{}, false
	}
	name := volumes.ClassName(claim)
	stored, ok := f.classes[name]
	if !ok {
		return problem(ClassMissing, "", fmt.Sprintf("there is no storage class %q of provisioner %s", name, f.Provisioner),
			"create the class again: kubectl get storageclass"), true
	}
	if stored.err != nil {
		return problem(ClassRefused, "", stored.err.Error(), createClass), true
	}
	if _, err := volumes.ParseClaim(claim, stored.class); err != nil {
		return problem(ClaimRejected, "", err.Error(), "do what the message says, in a new claim if it cannot be edited"), true
	}
	return Result{}, false
}

// notAsked is about claims that the cluster has not asked the manager for.
func (f *facts) notAsked(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	stored := f.classes[volumes.ClassName(claim)]
	mode := storagev1.VolumeBindingImmediate
	if stored.object != nil && stored.object.VolumeBindingMode != nil {
		mode = *stored.object.VolumeBindingMode
	}
	waits := mode == storagev1.VolumeBindingWaitForFirstConsumer && volumes.SelectedNode(claim) == ""
	_, asked := f.newest("PersistentVolumeClaim", claim, wellknown.EventProvisioningFailed)
	switch {
	case waits && asked:
		return Result{}, false // the scheduler is choosing another node
	case waits:
		return note(WaitsForConsumer, "", "its class waits for the first pod that uses it, and for the node that the scheduler selects"), true
	case volumes.AskedProvisioner(claim) == "":
		return note(WaitsForCluster, "", "the cluster's controller-manager has not asked for a volume yet"), true
	case volumes.AskedProvisioner(claim) != f.Provisioner:
		return problem(NotOurs, "", "the cluster has asked provisioner "+volumes.AskedProvisioner(claim),
			"the class was replaced: create a new claim"), true
	}
	return Result{}, false
}

// unlisted is about a file system that the claim names and the table lacks.
func (f *facts) unlisted(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	id := f.fileSystemOf(claim)
	if _, ok := f.table.Targets[id]; id == "" || ok || f.Table == nil || f.tableErr != nil {
		return Result{}, false
	}
	known := strings.Join(slices.Sorted(maps.Keys(f.table.Targets)), ", ")
	message := fmt.Sprintf("file system %s is not in the table, which has: %s", id, cmp.Or(known, "none"))
	if event, ok := f.newest("PersistentVolumeClaim", claim, wellknown.EventProvisioningFailed); ok {
		message = event.Message
	}
	return problem(FileSystemUnknown, "", message,
		"check that it exists in this account and region, and that --file-system-ids, --file-system-tags and --vpc-id of the manager allow it"), true
}

// inJob is about a claim whose directory a mount Job makes, or could not make.
func (f *facts) inJob(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	j, ok := f.attempt(volumes.VolumeName(claim.UID))
	if !ok || !j.operation.AddsOwner() {
		return Result{}, false
	}
	result := j.result
	see := fmt.Sprintf("kubectl -n %s logs job/%s", f.Namespace, j.job.Name)
	switch {
	case j.reason != "":
		return problem(Cause(j.reason), "", fmt.Sprintf("Job %s: %s", j.job.Name, j.message), fmt.Sprintf("kubectl -n %s describe job %s", f.Namespace, j.job.Name)), true
	case result.State == operations.Failed && j.operation.Copies():
		return problem(CloneFailed, "", fmt.Sprintf("Job %s could not copy claim %s: %s", j.job.Name, j.operation.SourceClaim, join(string(result.Reason), result.Message)),
			"do what the message says; it goes on with waits of up to 16 minutes; "+see), true
	case result.State == operations.Failed || result.State == operations.Blocked:
		return problem(SetupFailed, "", fmt.Sprintf("Job %s could not make the directory: %s", j.job.Name, join(string(result.Reason), result.Message)),
			"do what the message says; it is retried with waits of up to 16 minutes; "+see), true
	case j.status.State == mountjobs.Stuck, j.status.State == mountjobs.Lost:
		return problem(map[mountjobs.State]Cause{mountjobs.Stuck: JobStuck, mountjobs.Lost: JobLost}[j.status.State], "",
			fmt.Sprintf("Job %s: %s", j.job.Name, j.status.Message), "it is repeated by the next Job; "+see), true
	case result.State == operations.Done:
		return Result{}, false // the volume follows, or the manager says why not
	case j.status.State == mountjobs.Running && f.hasFailedSince(claim, j.began):
		return Result{}, false // the event says how; while a worker waits for more, the Job does not
	case j.status.State == mountjobs.Running && j.operation.Copies():
		return note(VolumeIsCopied, "", fmt.Sprintf("Job %s copies claim %s%s", j.job.Name, j.operation.SourceClaim, onNode(j.status.Node))), true
	case j.status.State == mountjobs.Running:
		return note(DirectoryIsMade, "", fmt.Sprintf("Job %s makes its directory%s", j.job.Name, onNode(j.status.Node))), true
	}
	return Result{}, false
}

// hasFailedSince says whether the manager has reported a failure since then, and nothing after it.
func (f *facts) hasFailedSince(claim *corev1.PersistentVolumeClaim, began time.Time) bool {
	event, ok := f.newest("PersistentVolumeClaim", claim, wellknown.EventProvisioningFailed, wellknown.EventProvisioning)
	return ok && event.Reason == wellknown.EventProvisioningFailed && !LastSeen(event).Before(began)
}

func (f *facts) leaderless(*corev1.PersistentVolumeClaim) (Result, bool) {
	if f.lacks("leases.coordination.k8s.io") || f.leader().Leads || f.isElectionOff() {
		return Result{}, false
	}
	return problem(NoLeader, "", "no manager leads, so nothing is provisioned",
		fmt.Sprintf("kubectl -n %s get pods -l %s=%s", f.Namespace, wellknown.LabelProgram, wellknown.ProgramManager)), true
}

// reported is what the newest event says.
func (f *facts) reported(claim *corev1.PersistentVolumeClaim) (Result, bool) {
	event, ok := f.newest("PersistentVolumeClaim", claim, wellknown.EventProvisioningFailed, wellknown.EventProvisioning)
	switch {
	case !ok:
		return Result{}, false
	case event.Reason == wellknown.EventProvisioning:
		return note(WaitsForJob, "", event.Message), true
	}
	cause := event.Annotations[wellknown.AnnotationCause]
	return problem(cmp.Or(Cause(cause), ProvisioningFailed), "", event.Message, cmp.Or(status.CauseRemedy(cause), "do what the message says")), true
}

func (f *facts) checkClasses() []Result {
	var results []Result
	for _, name := range slices.Sorted(maps.Keys(f.classes)) {
		if err := f.classes[name].err; err != nil {
			results = append(results, problem(ClassRefused, "storage class "+name, err.Error(), createClass).ofClass(name))
			continue
		}
		results = append(results, fine("storage class "+name, "its parameters are valid").ofClass(name))
	}
	if len(results) == 0 && !f.lacks("storageclasses.storage.k8s.io") {
		results = append(results, note(NoClass, "storage classes", "there is no class of provisioner "+f.Provisioner))
	}
	return results
}
