package wellknown

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
