package wellknown

// Annotations of our own.
const (
	// AnnotationFileSystemID, on a volume, names the file system that holds it; the port
	// option follows from it, never the other way round.
	AnnotationFileSystemID = keyPrefix + "file-system-id"
	// AnnotationPath, on a volume, is its directory, counted from the file system's root.
	AnnotationPath = keyPrefix + "path"
	// AnnotationClaimUID, on an adopted volume, is the uid of the claim that the ledger knows as
	// its owner. The names of other volumes say it.
	AnnotationClaimUID = keyPrefix + "claim-uid"
	// AnnotationRejected, on a claim, is ValueTrue while the claim cannot be accepted as it is.
	AnnotationRejected = keyPrefix + "rejected"
	// AnnotationRejectReason, on a rejected claim, says why in a sentence.
	AnnotationRejectReason = keyPrefix + "reject-reason"
	// AnnotationRestore, on a new claim, is the uid of the deleted claim whose directory it
	// wants back from the trash.
	AnnotationRestore = keyPrefix + "restore"
	// AnnotationKeepDeleted, on a volume, is how long its directory stays in the trash, when it
	// does at all: the class may be gone by the time the volume is.
	AnnotationKeepDeleted = keyPrefix + "keep-deleted"
	// AnnotationGivenUp, on a claim, stands for the world in which its setups failed too often.
	// While that stays the same, nothing is tried.
	AnnotationGivenUp = keyPrefix + "given-up"
	// AnnotationTunnel, on an event about a node, is the tunnel that it is about.
	AnnotationTunnel = keyPrefix + "tunnel"
	// AnnotationNextSweep, on a root claim and its volume, is when the trash of the file system has
	// something to remove, in RFC 3339, or "never". Without it nothing is known of the trash.
	AnnotationNextSweep = keyPrefix + "next-sweep"
	// AnnotationAccessPointID, on a volume, names the access point through which it is reached, and
	// whose port it has.
	AnnotationAccessPointID = keyPrefix + "access-point-id"
	// AnnotationSharedVolume, on a volume and on its claim, is the namespace and name of the
	// SharedVolume that they were made for.
	AnnotationSharedVolume = keyPrefix + "shared-volume"
	// AnnotationVolumeUID, on the claim of a SharedVolume, is the uid of the volume that was made
	// anew for it. The cluster's binder looks at what was written, and else every 15 seconds.
	AnnotationVolumeUID = keyPrefix + "volume-uid"
	// AnnotationOperations, on a mount Job, carries its operations as JSON.
	AnnotationOperations = keyPrefix + "operations"
)

// AnnotationUsed is the annotation, on a mount Job, that is ValueTrue when no volume is to be made
// of what the Job did: it was there and may go, or its file system is gone. The Job keeps its
// FinalizerOutcome for the sake of others.
func AnnotationUsed(volume string) string { return keyPrefix + "used-" + volume }

// Annotations of Kubernetes that we read or write.
const (
	// AnnotationStorageClass, on a claim, is the old place of the class name; it wins over
	// spec.storageClassName.
	AnnotationStorageClass = "volume.beta.kubernetes.io/storage-class"
	// AnnotationStorageProvisioner, on a claim, is how the cluster asks the provisioner it
	// names for a volume.
	AnnotationStorageProvisioner = "volume.kubernetes.io/storage-provisioner"
	// AnnotationBetaStorageProvisioner is the older form of AnnotationStorageProvisioner.
	AnnotationBetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// AnnotationSelectedNode, on a claim of a WaitForFirstConsumer class, is the node that the
	// scheduler chose for its pod.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"
	// AnnotationProvisionedBy, on a volume, names the provisioner that made it.
	AnnotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// AnnotationGID, on a volume, is the group that kubelet adds to every pod that uses it.
	AnnotationGID = "pv.beta.kubernetes.io/gid"
)

// ValueTrue is what an annotation or label says when it says yes.
const ValueTrue = "true"
