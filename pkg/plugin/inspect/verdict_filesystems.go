package inspect

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
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

const unreadable = "ConfigMap " + wellknown.TargetsConfigMap + " cannot be read: "

// checkTable also repeats what the leader says of the whole installation.
func (f *facts) checkTable() (results []Result) {
	if f.lacks("configmaps") {
		return nil
	}
	if f.Installation != nil {
		for _, c := range f.Installation.Status.Conditions {
			results = append(results, f.ofCondition(named("installation", f.Installation.Name), c)...)
		}
	}
	object := named("configmap", wellknown.TargetsConfigMap)
	isSaid := slices.ContainsFunc(results, func(r Result) bool { return r.Cause == TableUnreadable })
	switch {
	case f.Table == nil:
		results = append(results, problem(TableMissing, object, "it does not exist; agents serve the last table"))
	case f.tableErr == nil:
		results = append(results, fine(object, "%s", printing.Count(len(f.table.Targets), "file system")))
	case !isSaid:
		results = append(results, problem(TableUnreadable, object, unreadable+f.tableErr.Error()))
	}
	return results
}

func (f *facts) isListed(id string) bool {
	_, valid := f.table.Targets[id]
	return valid || f.invalid[id] != nil
}

// checkFileSystems also repeats what the manager says of file systems that the table does not have yet.
func (f *facts) checkFileSystems() (results []Result) {
	if f.Table == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(f.invalid)) {
		results = append(results, problem(TableUnreadable, named(KindFileSystem, id), unreadable+f.invalid[id].Error()))
	}
	for _, id := range slices.Sorted(maps.Keys(f.table.Targets)) {
		said := f.conditionsOfFileSystem(id)
		if len(said) == 0 {
			said = append(said, f.checkRoot(id, f.table.Targets[id]))
		}
		results = append(results, said...)
	}
	for _, object := range f.FileSystemObjects {
		if !f.isListed(object.Name) {
			results = append(results, f.conditionsOfFileSystem(object.Name)...)
		}
	}
	if len(results) == 0 && f.tableErr == nil {
		results = append(results, note(NoFileSystem, "table", "no file system is found yet"))
	}
	return results
}

func (f *facts) conditionsOfFileSystem(id string) (results []Result) {
	if object := f.shown[id]; object != nil {
		for _, c := range object.Status.Conditions {
			results = append(results, f.ofCondition(named(KindFileSystem, id), c)...)
		}
	}
	return results
}

// checkRoot is about the volume and claim that mount Jobs use. That another installation has them, and that they are
// not ready for a moment, only they show.
func (f *facts) checkRoot(id string, target ports.Target) Result {
	object := named(KindFileSystem, id)
	pair := volumes.RootPair{FileSystemID: id, Port: target.Port, Namespace: f.Namespace}
	pair.Volume, pair.Claim = f.volumes[volumes.RootName(id)].Object, f.rootClaim(id)
	switch why := pair.Ready(); {
	case why == "" || f.lacks(volumeResource) || f.lacks(claimResource):
		return fine(object, "port %d, %s", target.Port, printing.Count(mountTargets(target), "mount target"))
	case pair.OtherInstallation() != "":
		return problem(RootVolumeConflict, object, why)
	default:
		return problem(RootVolumeNotReady, object, "no mount Job can begin: "+why)
	}
}

func mountTargets(target ports.Target) int {
	subnets := sets.KeySet(target.AddressBySubnet).Union(sets.KeySet(target.IPv6BySubnet))
	return max(len(target.Zones()), len(subnets))
}

// rootClaim returns a file system's, nil if there is none.
func (f *facts) rootClaim(id string) *corev1.PersistentVolumeClaim {
	return f.claims[types.NamespacedName{Namespace: f.Namespace, Name: volumes.RootName(id)}]
}

// isRoot reports whether a claim is a file system's root claim.
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
func (f *facts) checkJobs() (results []Result) {
	seen := map[string]bool{}
	for _, j := range f.jobs {
		name := j.status.Name
		if newest := string(name.Kind) + name.FileSystemID; !seen[newest] {
			seen[newest] = true
			result := f.checkJob(j).in(named(KindFileSystem, name.FileSystemID))
			if pod := mountjobs.NewestPod(j.job, f.Pods); pod != nil {
				result.node = pod.Spec.NodeName
			}
			results = append(results, result)
		}
	}
	return results
}

func (f *facts) checkJob(j jobFacts) Result {
	object, state, where := named("job", j.job.Name), j.status.State, ""
	if j.status.Node != "" {
		where = " on " + named(KindNode, j.status.Node)
	}
	switch {
	case j.err != nil:
		return problem(JobUnreadable, object, j.err.Error())
	case j.reason != "":
		return problem(Cause(j.reason), object, j.message)
	case state == mountjobs.Stuck:
		return problem(JobStuck, object, j.status.Message+where)
	case state == mountjobs.Lost && mountjobs.IsUnreleased(j.job): // After that a later Job has what is still wanted.
		return problem(JobLost, object, j.status.Message)
	case state == mountjobs.Running:
		return note(JobRuns, object, "runs"+where)
	}
	return fine(object, "%s", join(string(state), j.status.Message))
}
