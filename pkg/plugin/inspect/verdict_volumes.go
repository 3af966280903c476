package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about volumes. Those of the annotation in which the manager says what is wrong have its reason.
const (
	VolumeEdited    Cause = "VolumeEdited"
	OptionHarmful   Cause = wellknown.EventMountOptionHarmful
	PortDiffers     Cause = "PortDiffers"
	Retained        Cause = "Retained"
	CleanupWaits    Cause = "CleanupWaits"
	CleanupRuns     Cause = "CleanupRuns"
	NoFileSystemNow Cause = "FileSystemNotInTable"
	DirectoryStays  Cause = wellknown.EventVolumeDeleteSkipped
)

// isUserVolume reports whether a volume has the directory of a claim.
func isUserVolume(volume volumes.Volume) bool {
	return volume.Kind == volumes.Provisioned || volume.Kind == volumes.Original
}

func (f *facts) checkVolumes() []Result {
	var results []Result
	for _, name := range slices.Sorted(maps.Keys(f.volumes)) {
		volume := f.volumes[name]
		if !isUserVolume(volume) {
			continue
		}
		result := f.checkVolume(volume).in(named(KindFileSystem, volume.FileSystemID))
		result.Object, result.fileSystem = named("volume", name), volume.FileSystemID
		if ref := volume.Object.Spec.ClaimRef; ref != nil {
			result = result.in(named(KindClaim, ref.Namespace, ref.Name))
		}
		results = append(results, result)
	}
	return append(results, f.leftDirectories()...)
}

// leftDirectories lists those of volumes that were deleted in the last hour or so, as long as events are kept. Only
// a diagnosis of the installation has them: the events quote volumes and claims of others.
func (f *facts) leftDirectories() (results []Result) {
	for key, events := range f.events {
		event := first(events, func(e corev1.Event) bool { return IsOurs(e) && e.Reason == wellknown.EventVolumeDeleteSkipped })
		if _, exists := f.volumes[key.name]; !exists && key.kind == "PersistentVolume" && event.Reason != "" {
			results = append(results, note(DirectoryStays, named("volume", key.name), event.Message).in(named(KindClaim, "others")))
		}
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Object, b.Object) })
	return results
}

func (f *facts) checkVolume(volume volumes.Volume) Result {
	target, known := f.table.Targets[volume.FileSystemID]
	hasTable := f.Table != nil && f.tableErr == nil
	point, harm := volume.Object.Annotations[wellknown.AnnotationAccessPointID], volumes.HarmfulMountOption(volume.Object)
	switch cause, message, said := strings.Cut(volume.Object.Annotations[wellknown.AnnotationProblem], ": "); {
	case volume.Problem != "":
		return problem(VolumeEdited, "", volume.Problem+": nothing is removed for it")
	case hasTable && !known && volume.FileSystemID != "":
		return problem(NoFileSystemNow, "", fmt.Sprintf("file system %s is not in the table", volume.FileSystemID))
	case f.isReleased(volume):
		return f.released(volume)
	case hasTable && known && volume.Port != target.Port && point == "":
		return problem(PortDiffers, "", fmt.Sprintf("its port is %d, that of file system %s in the table is %d", volume.Port, volume.FileSystemID, target.Port))
	case harm != "":
		return problem(OptionHarmful, "", harm)
	case said:
		return problem(Cause(cause), "", message)
	}
	return fine("", "%s, %s", strings.ToLower(string(volume.Object.Status.Phase)), join(volume.FileSystemID, volume.Path))
}

// isReleased reports whether no claim uses a volume any more.
func (f *facts) isReleased(volume volumes.Volume) bool {
	return volume.Object.Status.Phase == corev1.VolumeReleased ||
		volume.NeedsCleanup(f.claims[types.NamespacedName{Namespace: volume.Namespace, Name: volume.Claim}])
}

func (f *facts) released(volume volumes.Volume) Result {
	j := f.attempts[volume.Name]
	cleans := slices.ContainsFunc(j.outcome.Operations, func(o operations.Operation) bool { return o.Volume == volume.Name && o.Kind == operations.Cleanup })
	switch cause, message, said := strings.Cut(volume.Object.Annotations[wellknown.AnnotationProblem], ": "); {
	case volume.Policy != corev1.PersistentVolumeReclaimDelete:
		return note(Retained, "", "its claim is deleted, the data stays: nothing happens any more")
	case cleans && j.status.State == mountjobs.Running && j.reason == "":
		return note(CleanupRuns, "", fmt.Sprintf("Job %s removes its directory", j.job.Name))
	case said:
		return problem(Cause(cause), "", message)
	}
	return note(CleanupWaits, "", "its directory is removed by the next mount Job")
}

// Causes about SharedVolumes. Those of their condition Ready have the condition's reason.
const (
	SharedVolumeMissing Cause = "SharedVolumeMissing"
	SharedVolumeWaits   Cause = "SharedVolumeWaits"
	SharedVolumeDeleted Cause = "SharedVolumeIsDeleted"
)

// silentShared bounds the time in which the manager says nothing about a SharedVolume.
const silentShared = 30 * time.Second

// checkSharedVolumes repeats what the status of each says, which the manager keeps.
func (f *facts) checkSharedVolumes() (results []Result) {
	for _, shared := range f.SharedVolumes {
		claim := types.NamespacedName{Namespace: shared.Namespace, Name: wellknown.SharedClaimPrefix + shared.Name}
		result := f.sharedState(shared, claim)
		result.Object, result.fileSystem = named(KindSharedVolume, shared.Namespace, shared.Name), shared.Spec.FileSystemID
		results = append(results, result.in(named(KindClaim, claim.String())))
	}
	return results
}

func (f *facts) sharedState(shared *v1alpha1.SharedVolume, claim types.NamespacedName) Result {
	status, reason := shared.Status, SharedVolumeWaits
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Reason != "" {
			reason = Cause(c.Reason)
		}
	}
	isNew := f.Now.Sub(shared.CreationTimestamp.Time) < silentShared
	switch {
	case shared.DeletionTimestamp != nil || status.Phase == v1alpha1.Deleting:
		return note(SharedVolumeDeleted, "", cmp.Or(status.Message, "the manager deletes its claim, then its volume"))
	case status.Phase == v1alpha1.Ready:
		return cmp.Or(f.waitsForMount(claim), fine("", "claim %s can be used", claim.Name))
	case status.Phase != v1alpha1.Failed && isNew:
		return note(SharedVolumeWaits, "", cmp.Or(status.Message, "the manager has not reported anything yet"))
	case status.Phase == "":
		return problem(ManagerSilent, "", "the manager has reported nothing for "+age(f.Now, shared.CreationTimestamp.Time))
	}
	return problem(reason, "", status.Message)
}

func (f *facts) sharedVolume(name types.NamespacedName) *v1alpha1.SharedVolume {
	return first(f.SharedVolumes, func(s *v1alpha1.SharedVolume) bool { return s.Namespace == name.Namespace && s.Name == name.Name })
}

// sharedVolumeOf returns what a claim was created for, nil if that is no SharedVolume that could be read.
func (f *facts) sharedVolumeOf(claim *corev1.PersistentVolumeClaim) *v1alpha1.SharedVolume {
	namespace, name, _ := strings.Cut(claim.Annotations[wellknown.AnnotationSharedVolume], "/")
	if namespace != claim.Namespace {
		return nil
	}
	return f.sharedVolume(types.NamespacedName{Namespace: namespace, Name: name})
}
