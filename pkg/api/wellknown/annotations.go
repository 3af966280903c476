package wellknown

import (
	"strconv"
	"strings"
)

// Annotations of our own.
const (
	// AnnotationFileSystemID, on a volume, names its file system. The port option is derived from it,
	// never the other way round.
	AnnotationFileSystemID = keyPrefix + "file-system-id"
	// AnnotationPath, on a volume, is its directory, counted from the file system's root.
	AnnotationPath = keyPrefix + "path"
	// AnnotationClaimUID, on an adopted volume, is the uid of the claim that owns its
	// directory in the ledger. For other volumes, the uid is part of the name.
	AnnotationClaimUID = keyPrefix + "claim-uid"
	// AnnotationGivenTo, on a volume, is the uid of the claim that the ledger has its owner's entry for, if it is
	// not the one that the volume was made or adopted for.
	AnnotationGivenTo = keyPrefix + "given-to"
	// AnnotationRecordedSize, on a volume of a server of one's own, is the size in bytes that the ledger has, which
	// the server enforces.
	AnnotationRecordedSize = keyPrefix + "recorded-size"
	// AnnotationRejected, on a claim, is ValueTrue while the claim cannot be accepted as it is.
	AnnotationRejected = keyPrefix + "rejected"
	// AnnotationRejectReason, on a rejected claim, says why in a sentence.
	AnnotationRejectReason = keyPrefix + "reject-reason"
	// AnnotationRestore, on a new claim, is the uid of the deleted claim whose directory is
	// restored from the trash.
	AnnotationRestore = keyPrefix + "restore"
	// AnnotationReaders, on a claim, has the namespaces that may read its directory, with commas between.
	AnnotationReaders = keyPrefix + "readers"
	// AnnotationReads, on a new claim, is the namespace and name of the claim whose directory it is to read.
	AnnotationReads = keyPrefix + "reads"
	// AnnotationKeepDeleted, on a volume, is how long its directory stays in the trash, if at all. The
	// class may be deleted before the volume.
	AnnotationKeepDeleted = keyPrefix + "keep-deleted"
	// AnnotationGivenUp, on a claim, is a fingerprint of everything that its setups were made from
	// when they failed too often. The claim is not retried until the fingerprint changes.
	AnnotationGivenUp = keyPrefix + "given-up"
	// AnnotationTunnel, on an event about a node, is the tunnel that it is about.
	AnnotationTunnel = keyPrefix + "tunnel"
	// AnnotationProblem, on a volume, says why its directory is not removed, or why the volume is not adopted: a
	// cause, a colon and a sentence.
	AnnotationProblem = keyPrefix + "problem"
	// AnnotationCause, on an event about a claim or a volume, says in a word why it waits or fails.
	AnnotationCause = keyPrefix + "cause"
	// AnnotationNextSweep, on a root claim and its volume, is when the trash of the file system has
	// something to remove, in RFC 3339, or "never". Without it the state of the trash is unknown.
	AnnotationNextSweep = keyPrefix + "next-sweep"
	// AnnotationUsage, on a claim, is what its directory holds, as JSON.
	AnnotationUsage = keyPrefix + "usage"
	// AnnotationSurvey, on a root claim and its volume, is how far the survey of the file system is, as JSON; on a
	// survey Job, where it began.
	AnnotationSurvey = keyPrefix + "survey"
	// AnnotationSurveyRequested, on a root claim, is when a user requested a survey, in RFC 3339.
	AnnotationSurveyRequested = keyPrefix + "survey-requested"
	// AnnotationAccessPointID, on a volume, names the access point that its port leads to.
	AnnotationAccessPointID = keyPrefix + "access-point-id"
	// AnnotationIAM, on a volume, says that the tunnel of its access point presents an IAM identity.
	AnnotationIAM = keyPrefix + "iam"
	// AnnotationSharedVolume, on a volume and on its claim, is the namespace and name of the
	// SharedVolume that they were made for.
	AnnotationSharedVolume = keyPrefix + "shared-volume"
	// AnnotationVolumeUID, on the claim of a SharedVolume, is the uid of the volume that was made
	// anew for it. A change wakes the cluster's binder, which else syncs every 15 seconds.
	AnnotationVolumeUID = keyPrefix + "volume-uid"
	// AnnotationOperations, on a mount Job, carries its first operations as JSON.
	AnnotationOperations = keyPrefix + "operations"
	// AnnotationFilledTrash, on a mount Job, is when a batch that was removed from it last moved a
	// directory to the trash, in RFC 3339.
	AnnotationFilledTrash = keyPrefix + "filled-trash"
	// AnnotationUnsuccessful, on a mount Job whose outcome was used, says that some of its operations are not done: until
	// the Job is deleted, later attempts depend on them.
	AnnotationUnsuccessful = keyPrefix + "unsuccessful"
	// AnnotationCACertificates, on the Service of an NFS server, is its certificate authority in PEM.
	AnnotationCACertificates = keyPrefix + "ca-certificates"
	// AnnotationFirstClaim, on a mount Job, is the namespace and name of the claim that it was created for.
	AnnotationFirstClaim = keyPrefix + "first-claim"
)

// AnnotationBatch is the annotation, on a mount Job, with the operations that its worker was given as batch
// of a number.
func AnnotationBatch(number int) string { return batchPrefix + strconv.Itoa(number) }

// ParseAnnotationBatch parses the number. ok is false for names that AnnotationBatch does not return.
func ParseAnnotationBatch(name string) (number int, ok bool) {
	text, ok := strings.CutPrefix(name, batchPrefix)
	if !ok {
		return 0, false
	}
	number, err := strconv.Atoi(text)
	return number, err == nil && AnnotationBatch(number) == name
}

const batchPrefix = keyPrefix + "batch-"

// AnnotationUsed is the annotation, on a mount Job, that is set when no volume is to be created from the
// Job's result: the volume was created and may be deleted, or its file system is gone. Its value is the
// number of the Job's newest batch at that time, or ValueTrue for the first. The Job keeps its
// FinalizerOutcome for the results of other volumes.
func AnnotationUsed(volume string) string { return usedPrefix + volume }

// ParseAnnotationUsed returns the volume of an AnnotationUsed. ok is false for other names.
func ParseAnnotationUsed(name string) (volume string, ok bool) {
	return strings.CutPrefix(name, usedPrefix)
}

const usedPrefix = keyPrefix + "used-"

// ConditionProvisioned is the type of a condition of claims that wait, or are refused. A claim that is bound has
// none.
const ConditionProvisioned = keyPrefix + "Provisioned"

// Annotations of Kubernetes that we read or write.
const (
	// AnnotationStorageClass, on a claim, is the former field of the class name; it overrides
	// spec.storageClassName.
	AnnotationStorageClass = "volume.beta.kubernetes.io/storage-class"
	// AnnotationStorageProvisioner, on a claim, names the provisioner that is to create the volume.
	AnnotationStorageProvisioner = "volume.kubernetes.io/storage-provisioner"
	// AnnotationBetaStorageProvisioner is the older form of AnnotationStorageProvisioner.
	AnnotationBetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// AnnotationBindCompleted, on a claim, says that its binding to a volume is complete.
	AnnotationBindCompleted = "pv.kubernetes.io/bind-completed"
	// AnnotationBoundByController, on a claim, says that its volume was not named by its author.
	AnnotationBoundByController = "pv.kubernetes.io/bound-by-controller"
	// AnnotationSelectedNode, on a claim of a WaitForFirstConsumer class, is the node that the
	// scheduler chose for its pod.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"
	// AnnotationProvisionedBy, on a volume, names the provisioner that made it.
	AnnotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// AnnotationGID, on a volume, is the group that kubelet adds to every pod that uses it.
	AnnotationGID = "pv.beta.kubernetes.io/gid"
)

// ValueTrue is the value of annotations and labels that are set.
const ValueTrue = "true"

// Finalizers.
const (
	// FinalizerVolume, on volumes with policy Delete, keeps the object until its directory is
	// cleaned up. It is external-provisioner's, so that other tools recognize it.
	FinalizerVolume  = "external-provisioner.volume.kubernetes.io/finalizer"
	FinalizerOutcome = keyPrefix + "outcome" // keeps a finished mount Job until the leader has used its outcome
	// FinalizerSharedVolume keeps a SharedVolume until its claim and its volume are gone.
	FinalizerSharedVolume = keyPrefix + "shared-volume"
	// FinalizerVolumeProtection is Kubernetes': it keeps a deleted volume until no claim is bound to it.
	FinalizerVolumeProtection = KubernetesDomain + "/pv-protection"
)

// Labels that a claim requests in spec.selector.matchLabels, and that its volume then has.
const (
	// LabelVolumeName is the directory's name; claims that share it share the data.
	LabelVolumeName = "volume_name"
	// LabelFileSystemID is a file system's id: optional on claims, and set on all volumes. On root
	// volumes it is for readers of the original system's format and protects nothing.
	LabelFileSystemID = "file_system_id"
	// LabelReclaimPolicy is Delete or Retain, and overrides the class.
	LabelReclaimPolicy = "reclaim_policy"
)

// LabelRootKey is on root volumes for readers of the original system's format, and protects nothing.
const LabelRootKey = "root_key"

// LabelProgram is on the pods of the manager and of the node agents, and on the Services of their metrics: the
// programs find each other by it. Labels that everybody has, such as app.kubernetes.io/name, are often
// replaced in all objects of an installation.
const (
	LabelProgram   = keyPrefix + "program"
	ProgramManager = "manager"
	ProgramAgent   = "node-agent"
)

// LabelManagedBy is Kubernetes': the program that writes an object.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// LabelServer has the id of the target that the NFS server behind a Service of the manager's namespace becomes.
const LabelServer = keyPrefix + "server"

// QuotasContainer is the init container of an NFS server with quotas. Its termination message is QuotasEnforced, or why
// its disk cannot enforce the sizes of volumes.
const (
	QuotasContainer = "quotas"
	QuotasEnforced  = "enforced"
)

// LabelInstallation marks a FileSystem with the namespace of the installation that writes it: no other one changes it.
const LabelInstallation = keyPrefix + "installation"

// Labels of mount Jobs, and their values.
const (
	LabelComponent            = "component" // of the original system
	ComponentWorker           = "efs-worker"
	LabelAppComponent         = "app.kubernetes.io/component"
	AppComponentMountJob      = "mount-job"
	LabelMountJobFileSystemID = keyPrefix + "file-system-id"
	// LabelSetUp and LabelCleanedUp count the directories that a Job was sent to set up and to clean up.
	LabelSetUp     = keyPrefix + "set-up"
	LabelCleanedUp = keyPrefix + "cleaned-up"
)

// TaintAgentNotReady keeps pods off a node until its tunnels serve. The agent removes it if
// --remove-startup-taint is set.
const TaintAgentNotReady = keyPrefix + "agent-not-ready"

// Tags of the access points that the manager creates. The driver's allows the manager what AWS's policy for the AWS EFS
// CSI driver allows; the others find an access point whose volume was never created.
const (
	TagDriver  = "efs.csi.aws.com/cluster"
	TagCluster = keyPrefix + "cluster"
	TagClaim   = keyPrefix + "claim"
	TagVolume  = keyPrefix + "volume"
)
