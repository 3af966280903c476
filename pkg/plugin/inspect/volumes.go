package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about volumes.
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

func (f *facts) checkVolumes() []Result {
	var results []Result
	for _, name := range slices.Sorted(maps.Keys(f.volumes)) {
		volume := f.volumes[name]
		if volume.Kind != volumes.Provisioned && volume.Kind != volumes.Original {
			continue
		}
		result := f.checkVolume(volume).ofFileSystem(volume.FileSystemID)
		result.Object = "volume " + name
		if ref := volume.Object.Spec.ClaimRef; ref != nil {
			result = result.ofClaim(ref.Namespace, ref.Name)
		}
		results = append(results, result)
	}
	return append(results, f.leftDirectories()...)
}

// leftDirectories lists those of volumes that were deleted in the last hour or so, as long as events are kept. Only
// a diagnosis of the installation has them: the events quote volumes and claims of others.
func (f *facts) leftDirectories() []Result {
	var results []Result
	for key, events := range f.events {
		if _, exists := f.volumes[key.name]; exists || key.kind != "PersistentVolume" {
			continue
		}
		for _, event := range events {
			if isOurs(event) && event.Reason == wellknown.EventVolumeDeleteSkipped {
				results = append(results, note(DirectoryStays, "volume "+key.name, event.Message).ofInstallation())
				break
			}
		}
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Object, b.Object) })
	return results
}

func (f *facts) checkVolume(volume volumes.Volume) Result {
	see := "kubectl describe pv " + volume.Name
	target, known := f.table.Targets[volume.FileSystemID]
	hasTable := f.Table != nil && f.tableErr == nil
	switch {
	case volume.Problem != "":
		return problem(VolumeEdited, "", volume.Problem+": nothing is removed for it", "correct the volume, or delete it and the directory by hand; "+see)
	case hasTable && !known && volume.FileSystemID != "":
		return problem(NoFileSystemNow, "", fmt.Sprintf("file system %s is not in the table", volume.FileSystemID),
			"restore it, or check --file-system-ids and --file-system-tags of the manager")
	case f.isReleased(volume):
		return f.released(volume, see)
	case hasTable && known && volume.Port != target.Port && f.pointOf(volume) == "":
		return problem(PortDiffers, "", fmt.Sprintf("its port is %d, that of file system %s in the table is %d", volume.Port, volume.FileSystemID, target.Port),
			"none while a manager leads: it corrects the volume; then restart pods that mounted it through the old port")
	}
	if why := volumes.HarmfulMountOption(volume.Object); why != "" {
		return problem(OptionHarmful, "", why, "kubectl edit pv "+volume.Name+": correct spec.mountOptions; then restart pods that use it")
	}
	if result, ok := f.cannotCleanUp(volume, see); ok {
		return result
	}
	return fine("", "%s, %s", strings.ToLower(string(volume.Object.Status.Phase)), join(volume.FileSystemID, volume.Path))
}

// pointOf is the access point that a volume's port leads to.
func (f *facts) pointOf(volume volumes.Volume) string {
	return volume.Object.Annotations[wellknown.AnnotationAccessPointID]
}

// isReleased says whether no claim uses a volume any more.
func (f *facts) isReleased(volume volumes.Volume) bool {
	if volume.Object.Status.Phase == corev1.VolumeReleased {
		return true
	}
	return volume.NeedsCleanup(f.claim(types.NamespacedName{Namespace: volume.Namespace, Name: volume.Claim}))
}

func (f *facts) released(volume volumes.Volume, see string) Result {
	if volume.Policy != corev1.PersistentVolumeReclaimDelete {
		return note(Retained, "", "its claim is deleted, the data stays: nothing happens any more")
	}
	j, ok := f.attempt(volume.Name)
	if ok && j.operation.Kind == operations.Cleanup && j.status.State == mountjobs.Running && j.reason == "" {
		return note(CleanupRuns, "", fmt.Sprintf("Job %s removes its directory", j.job.Name))
	}
	if result, ok := f.cannotCleanUp(volume, see); ok {
		return result
	}
	return note(CleanupWaits, "", "its directory is removed by the next mount Job")
}

// cannotCleanUp reads the annotation in which the manager says why a volume is not cleaned up, or not adopted.
func (f *facts) cannotCleanUp(volume volumes.Volume, see string) (Result, bool) {
	cause, message, ok := strings.Cut(volume.Object.Annotations[wellknown.AnnotationProblem], ": ")
	return problem(Cause(cause), "", message, cmp.Or(status.CauseRemedy(cause), see)), ok
}
