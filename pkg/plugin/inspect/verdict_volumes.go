package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
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

func (f *facts) checkVolumes() (results []Result) {
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
	_, known := f.table.Targets[volume.FileSystemID]
	hasTable := f.Table != nil && f.tableErr == nil
	on, harm := ports.VolumeOf(volume.Object).On, volumes.HarmfulMountOption(volume.Object)
	want, _ := f.table.Port(on)
	switch cause, message, said := strings.Cut(volume.Object.Annotations[wellknown.AnnotationProblem], ": "); {
	case volume.Problem != "":
		return problem(VolumeEdited, "", volume.Problem+": nothing is removed for it")
	case hasTable && !known && volume.FileSystemID != "":
		return problem(NoFileSystemNow, "", fmt.Sprintf("file system %s is not in the table", volume.FileSystemID))
	case f.isReleased(volume):
		return f.released(volume)
	case hasTable && known && volume.Port != want:
		return problem(PortDiffers, "", fmt.Sprintf("its port is %d, that of %s in the table is %d", volume.Port, on, want))
	case harm != "":
		return problem(OptionHarmful, "", harm)
	case said:
		return problem(Cause(cause), "", message)
	}
	return Fine("", "%s, %s", strings.ToLower(string(volume.Object.Status.Phase)), join(on.String(), volume.Path))
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
	case cleans && j.outcome.State == mountjobs.Running && j.reason == "":
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
	status := shared.Status
	ready := first(status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
	isNew := f.Now.Sub(shared.CreationTimestamp.Time) < silentShared
	switch {
	case shared.DeletionTimestamp != nil || status.Phase == v1alpha1.Deleting:
		return note(SharedVolumeDeleted, "", cmp.Or(status.Message, "the manager deletes its claim, then its volume"))
	case status.Phase == v1alpha1.Ready:
		return cmp.Or(f.waitsForMount(claim), Fine("", "claim %s can be used", claim.Name))
	case status.Phase != v1alpha1.Failed && isNew:
		return note(SharedVolumeWaits, "", cmp.Or(status.Message, "the manager has not reported anything yet"))
	case status.Phase == "":
		return problem(ManagerSilent, "", "the manager has reported nothing for "+age(f.Now, shared.CreationTimestamp.Time))
	}
	return problem(cmp.Or(Cause(ready.Reason), SharedVolumeWaits), "", status.Message)
}

// sharedVolumeOf returns what a claim was created for, nil if that is no SharedVolume that could be read.
func (f *facts) sharedVolumeOf(claim *corev1.PersistentVolumeClaim) *v1alpha1.SharedVolume {
	namespace, name, _ := strings.Cut(claim.Annotations[wellknown.AnnotationSharedVolume], "/")
	if namespace != claim.Namespace {
		return nil
	}
	return f.shared[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Causes about the table and file systems. Those of conditions have the condition's reason.
const (
	TableMissing       Cause = wellknown.EventTableMissing
	TableUnreadable    Cause = wellknown.EventTableUnreadable
	FileSystemUnknown  Cause = "FileSystemUnknown"
	NoFileSystem       Cause = "NoFileSystem"
	ServerNotReady     Cause = wellknown.EventServerNotReady
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
		results = f.ofConditions(named("installation", f.Installation.Name), f.Installation.Status.Conditions)
	}
	object := named("configmap", wellknown.TargetsConfigMap)
	isSaid := slices.ContainsFunc(results, func(r Result) bool { return r.Cause == TableUnreadable })
	switch {
	case f.Table == nil:
		results = append(results, problem(TableMissing, object, "it does not exist; agents serve the last table"))
	case f.tableErr == nil:
		results = append(results, Fine(object, "%s", printing.Count(len(f.table.Targets), "file system")))
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
		said, server := f.ofConditions(named(KindFileSystem, id), f.shown[id]), f.checkServer(id)
		if len(said) == 0 {
			said = append(said, f.checkRoot(id, f.table.Targets[id]))
		}
		if len(server) > 0 { // it says more than the condition, also while no manager leads
			said = keep(said, func(r Result) bool { return r.Cause != ServerNotReady })
		}
		results = append(append(results, said...), server...)
	}
	for _, object := range f.FileSystemObjects {
		if !f.isListed(object.Name) {
			results = append(results, f.ofConditions(named(KindFileSystem, object.Name), object.Status.Conditions)...)
		}
	}
	if len(results) == 0 && f.tableErr == nil {
		results = append(results, note(NoFileSystem, "table", "no file system is found yet"))
	}
	return results
}

// checkServer is about the pod of an NFS server of the installation's own. Why it is not ready, the kubelet says in an event.
func (f *facts) checkServer(id string) (results []Result) {
	for _, pod := range f.Pods {
		why := PodProblem(pod)
		if pod.DeletionTimestamp != nil {
			why = "it ends, and no other one starts before; if its node is dead: kubectl taint node " + pod.Spec.NodeName + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
		}
		if pod.Labels[wellknown.LabelServer] == id && why != "" {
			said := first(f.events[eventKey{"Pod", pod.Namespace, pod.Name}], func(e corev1.Event) bool { return e.Reason == "Unhealthy" || e.Reason == "FailedMount" })
			result := problem(ServerNotReady, named(KindFileSystem, id), join(join("the pod "+pod.Name+" of its server is not ready", why), said.Message))
			result.Remedy = "kubectl -n " + pod.Namespace + " describe pod " + pod.Name
			results = append(results, result)
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
		return Fine(object, "port %d, %s", target.Port, printing.Count(mountTargets(target), "mount target"))
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
		name := j.outcome.Name
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
	object, state, where := named("job", j.job.Name), j.outcome.State, ""
	if j.outcome.Node != "" {
		where = " on " + named(KindNode, j.outcome.Node)
	}
	switch {
	case j.err != nil:
		return problem(JobUnreadable, object, j.err.Error())
	case j.reason != "":
		return problem(Cause(j.reason), object, j.message)
	case state == mountjobs.Stuck:
		return problem(JobStuck, object, j.outcome.Message+where)
	case state == mountjobs.Lost && mountjobs.IsUnreleased(j.job): // After that a later Job has what is still wanted.
		return problem(JobLost, object, j.outcome.Message)
	case state == mountjobs.Running:
		return note(JobRuns, object, "runs"+where)
	}
	return Fine(object, "%s", join(string(state), j.outcome.Message))
}
