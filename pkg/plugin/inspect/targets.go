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
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Causes about the table and file systems. Those of conditions have the condition's reason.
const (
	TableMissing       Cause = wellknown.EventTableMissing
	TableUnreadable    Cause = wellknown.EventTableUnreadable
	FileSystemUnknown  Cause = "FileSystemUnknown"
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

// checkFileSystem reads what the manager says. That another installation has a file system, and that its root volume
// is not ready for a moment, only their objects show.
func (f *facts) checkFileSystem(id string, target ports.Target) []Result {
	if results := f.conditionsOfFileSystem(id); len(results) > 0 {
		return results
	}
	return []Result{f.rootSays(id, target).ofFileSystem(id)}
}

func (f *facts) rootSays(id string, target ports.Target) Result {
	object := "file system " + id
	why, other := f.rootProblem(id, target.Port)
	switch {
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

// Causes about Jobs. What keeps a Job from starting has the name of its mountjobs.Reason.
const (
	JobStuck      Cause = "JobStuck"
	JobLost       Cause = "JobLost"
	JobUnreadable Cause = "JobUnreadable"
	JobRuns       Cause = "JobRuns"
)

// checkJobs is about the newest Job of each kind and file system: what an older one left is repeated.
func (f *facts) checkJobs() []Result {
	var results []Result
	seen := map[string]bool{}
	for _, j := range f.jobs {
		name := j.status.Name
		newest := string(name.Kind) + name.FileSystemID
		if seen[newest] {
			continue
		}
		seen[newest] = true
		results = append(results, f.checkJob(j).ofFileSystem(name.FileSystemID))
	}
	return results
}

func (f *facts) checkJob(j jobFacts) Result {
	object := "job " + j.job.Name
	see := fmt.Sprintf("kubectl -n %s describe job %s", f.Namespace, j.job.Name)
	switch {
	case j.err != nil:
		return problem(JobUnreadable, object, j.err.Error(), "apply manager and mount Jobs of one version; "+see)
	case j.reason != "":
		return problem(Cause(j.reason), object, j.message, see)
	case j.status.State == mountjobs.Stuck:
		return problem(JobStuck, object, j.status.Message,
			fmt.Sprintf("see the pod's node %s: a dead mount keeps it; the operations run again in the next Job", j.status.Node))
	case j.status.State == mountjobs.Lost && mountjobs.IsUnreleased(j.job): // After that a later Job has what is still wanted.
		return problem(JobLost, object, j.status.Message, "none: its operations are repeated; "+see)
	case j.status.State == mountjobs.Running:
		return note(JobRuns, object, "runs"+onNode(j.status.Node))
	}
	return fine(object, "%s", join(string(j.status.State), j.status.Message))
}

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}
