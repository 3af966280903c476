package inspect

import (
	"cmp"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

const (
	managerLogs = "kubectl -n {system} logs -l " + wellknown.LabelProgram + "=" + wellknown.ProgramManager + " --prefix --tail=100"
	managerPods = "kubectl -n {system} describe pods -l " + wellknown.LabelProgram + "=" + wellknown.ProgramManager
	describeJob = "kubectl -n {system} describe job {name}"
	installIt   = "install it, or name its namespace with --system-namespace"
)

// remedies has what to do about the causes that package status does not have, with the namespace of the installation,
// and the namespace and name of the object, in braces.
var remedies = map[Cause]string{
	ClaimMissing:        "kubectl get pvc --namespace {namespace}; if it was deleted: kubectl efs-stunnel trash list --namespace {namespace}",
	SharedVolumeMissing: "kubectl get sharedvolumes --namespace {namespace}",
	PodMissing:          "kubectl get pods --namespace {namespace}",
	NodeMissing:         "kubectl get nodes",
	FileSystemUnknown:   "check that it exists in this account and region, and that --file-system-ids, --file-system-tags and --vpc-id of the manager allow it",

	ClaimLost:      "create a claim with the same path (namespace, class and volume_name), which gets the data",
	ClassMissing:   "create the class, or a claim of another one: kubectl get storageclass",
	NoDefaultClass: "create the claim again with storageClassName, or make a class the default: kubectl annotate storageclass NAME " + annotationDefaultClass + "=true",
	NotOurs:        "create a new claim, of a class of this provisioner",
	ManagerSilent:  managerLogs,

	VolumeEdited:    "correct the volume, or delete it and the directory by hand; kubectl describe pv {name}",
	NoFileSystemNow: "restore it, or check --file-system-ids and --file-system-tags of the manager",
	PortDiffers:     "none while a manager leads: it corrects the volume; then restart pods that mounted it through the old port",

	ManagerMissing:  installIt,
	ManagerDown:     managerPods,
	ManagerNotReady: managerPods,
	NoLeader:        managerLogs,
	VersionSkew:     "apply the manifests with all three images of one version",

	RootVolumeNotReady: "the manager repairs it within seconds; if not: kubectl describe pv " + wellknown.RootVolumePrefix + "{name}; " +
		"kubectl -n {system} describe pvc " + wellknown.RootVolumePrefix + "{name}",

	JobStuck:      "see the pod's node: a dead mount keeps it; the operations run again in the next Job; " + describeJob,
	JobLost:       "none: its operations are repeated; " + describeJob,
	JobUnreadable: "apply manager and mount Jobs of one version; " + describeJob,

	AgentsMissing: installIt,
	AgentMissing:  "kubectl -n {system} describe daemonset " + wellknown.NodeDaemonSet,
	AgentNotReady: "kubectl -n {system} get pods -o wide",
	NodeNotReady:  "kubectl describe node {name}",
	HostNameShared: "give each node a host name of its own, or another identity by the kernel's parameter nfs.nfs4_unique_id: " +
		wellknown.DocsURL + "tasks/node-names.md",
}

// remediesOf has what to do about any other cause of an object of a kind.
var remediesOf = map[string]string{
	"job":          describeJob,
	"volume":       "kubectl describe pv {name}",
	"sharedvolume": "do what the message says; kubectl -n {namespace} describe sharedvolume {name}",
}

// withRemedy completes a problem that has no remedy yet.
func (f *facts) withRemedy(r Result) Result {
	if r.Level != Problem || r.Remedy != "" {
		return r
	}
	kind, name := split(r.Object)
	namespace, own, _ := strings.Cut(name, "/")
	reason := string(r.Cause)
	text := cmp.Or(remedies[r.Cause], status.Remedy(reason), status.CauseRemedy(reason), remediesOf[kind], "do what the message says")
	own = cmp.Or(own, name) // without a namespace
	r.Remedy = strings.NewReplacer("{system}", f.Namespace, "{namespace}", namespace, "{name}", own).Replace(text)
	return r
}
