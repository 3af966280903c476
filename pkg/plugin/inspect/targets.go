package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about the table and file systems. Those of events have the event's reason.
const (
	TableMissing       Cause = wellknown.EventTableMissing
	TableUnreadable    Cause = wellknown.EventTableUnreadable
	FileSystemMissing  Cause = wellknown.EventFileSystemMissing
	FileSystemUnknown  Cause = "FileSystemUnknown"
	NoMountTarget      Cause = "NoMountTarget"
	NoFileSystem       Cause = "NoFileSystem"
	RootVolumeConflict Cause = wellknown.EventRootVolumeConflict
	RootVolumeNotReady Cause = "RootVolumeNotReady"
)

func (f *facts) checkTable() []Result {
	if f.lacks("configmaps") {
		return nil
	}
	object := "configmap " + wellknown.TargetsConfigMap
	var results []Result
	switch {
	case f.Table == nil:
		results = append(results, problem(TableMissing, object, "it does not exist; agents serve the last table",
			"none while a manager leads: it rebuilds the table from the volumes within a minute or two"))
	case f.tableErr != nil:
		results = append(results, problem(TableUnreadable, object, f.tableErr.Error(), fmt.Sprintf(
			"kubectl -n %s edit configmap %s; or delete it, it is rebuilt from the volumes", f.Namespace, wellknown.TargetsConfigMap)))
	default:
		results = append(results, fine(object, "%s", count(len(f.table.Targets), "file system")))
	}
	if f.Pinned != nil {
		if _, err := ports.DecodePinned([]byte(f.Pinned.Data[wellknown.TargetsKey])); err != nil {
			results = append(results, problem(TableUnreadable, "configmap "+wellknown.PinnedConfigMap, err.Error(),
				fmt.Sprintf("kubectl -n %s edit configmap %s", f.Namespace, wellknown.PinnedConfigMap)))
		}
	}
	return append(results, f.checkInstallation()...)
}

func (f *facts) checkFileSystems() []Result {
	if f.Table == nil {
		return nil
	}
	var results []Result
	for _, id := range slices.Sorted(maps.Keys(f.invalid)) {
		results = append(results, problem(TableUnreadable, "file system "+id, f.invalid[id].Error(),
			fmt.Sprintf("kubectl -n %s edit configmap %s", f.Namespace, wellknown.TargetsConfigMap)).ofFileSystem(id))
	}
	for _, id := range slices.Sorted(maps.Keys(f.table.Targets)) {
		results = append(results, f.checkFileSystem(id, f.table.Targets[id])...)
	}
	results = append(results, f.checkUnlisted()...)
	if len(results) == 0 && f.tableErr == nil {
		results = append(results, note(NoFileSystem, "table", "no file system is found yet"))
	}
	return results
}

// checkFileSystem prefers what the manager says. Without its objects, the table shows a part of that.
func (f *facts) checkFileSystem(id string, target ports.Target) []Result {
	if results := f.conditionsOfFileSystem(id); len(results) > 0 {
		return results
	}
	return []Result{f.tableSays(id, target).ofFileSystem(id)}
}

func (f *facts) tableSays(id string, target ports.Target) Result {
	object := "file system " + id
	why, other := f.rootProblem(id, target.Port)
	switch {
	case !target.NotFoundSince.IsZero():
		return problem(FileSystemMissing, object, fmt.Sprintf("listings of the EFS API have lacked it for %s; its target stays", age(f.Now, target.NotFoundSince)),
			"aws efs describe-file-systems --file-system-id "+id+"; check --file-system-ids, --file-system-tags and the account")
	case !target.HasAddress():
		return problem(NoMountTarget, object, "it has no mount target", "aws efs create-mount-target --file-system-id "+id)
	case other != "":
		return problem(RootVolumeConflict, object, why, "kubectl describe pv "+volumes.RootName(id))
	case why != "":
		return problem(RootVolumeNotReady, object, "no mount Job can begin: "+why,
			fmt.Sprintf("the manager repairs it within seconds; if not: kubectl describe pv %s; kubectl -n %s describe pvc %s",
				volumes.RootName(id), f.Namespace, volumes.RootName(id)))
	}
	return fine(object, "port %d, %s", target.Port, count(mountTargets(target), "mount target"))
}

func mountTargets(target ports.Target) int {
	subnets := sets.KeySet(target.AddressBySubnet).Union(sets.KeySet(target.IPv6BySubnet))
	return max(len(target.Zones()), len(subnets))
}

// rootProblem says why no mount Job can use a file system's root claim, and which other installation
// has its volume.
func (f *facts) rootProblem(id string, port int) (why, other string) {
	if f.lacks(volumeResource) || f.lacks(claimResource) {
		return "", ""
	}
	pair := volumes.RootPair{FileSystemID: id, Port: port, Namespace: f.Namespace}
	pair.Volume, pair.Claim = f.volumes[volumes.RootName(id)].Object, f.rootClaim(id)
	return pair.Ready(), pair.OtherInstallation()
}

// nextSweep is the annotation of the root claim, which has none before the first sweep.
func (f *facts) nextSweep(id string) string {
	if claim := f.rootClaim(id); claim != nil {
		return cmp.Or(claim.Annotations[wellknown.AnnotationNextSweep], "none yet")
	}
	return ""
}

// isRoot says whether a claim is a file system's root claim.
func (f *facts) isRoot(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Namespace == f.Namespace && strings.HasPrefix(claim.Name, wellknown.RootVolumePrefix) &&
		volumes.ClassName(claim) == wellknown.RootStorageClass
}
