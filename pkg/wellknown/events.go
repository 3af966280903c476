package wellknown

// Event reasons on the targets' ConfigMap, which make describing it the status page.
const (
	// EventFileSystemFound: a file system was added to the table.
	EventFileSystemFound = "FileSystemFound"
	// EventFileSystemUnusable: a file system is there but cannot serve; the message says why.
	EventFileSystemUnusable = "FileSystemUnusable"
	// EventFileSystemMissing: a file system of the table was not in the latest listing; nothing
	// is removed yet.
	EventFileSystemMissing = "FileSystemMissing"
	// EventDiscoveryFailed: the file systems could not be listed; the table stays as it is.
	EventDiscoveryFailed = "DiscoveryFailed"
	// EventOutOfPorts: a file system has no port, because all are in use.
	EventOutOfPorts = "OutOfPorts"
	// EventTableFull: a file system has no port, because the ConfigMap is full.
	EventTableFull = "TableFull"
	// EventTableNotStored: the apiserver refuses the table; the stored one stays in force.
	EventTableNotStored = "TableNotStored"
	// EventIdentityLooksWrong: the file systems that are listed seem to be another account's or
	// region's; the table stays as it is.
	EventIdentityLooksWrong = "IdentityLooksWrong"
	// EventPortConflict: a port that was asked for is in use; also on the volume that asks for it.
	EventPortConflict = "PortConflict"
	// EventTableUnreadable: the ConfigMap cannot be read; nothing is written until it can.
	EventTableUnreadable = "TableUnreadable"
	// EventRootVolumeConflict: an object that is not ours has a root volume's or root claim's name.
	EventRootVolumeConflict = "RootVolumeConflict"
)

// Event reasons on claims and volumes.
const (
	// EventProvisioning: a mount Job has begun to make the claim's directory, or will when the one
	// that runs has ended.
	EventProvisioning = "Provisioning"
	// EventProvisioningSucceeded: the claim has its volume.
	EventProvisioningSucceeded = "ProvisioningSucceeded"
	// EventProvisioningFailed: a claim was refused, or its setup went wrong.
	EventProvisioningFailed = "ProvisioningFailed"
	// EventVolumeResizeSuccessful: a claim has grown, and its volume with it. These two are
	// external-resizer's.
	EventVolumeResizeSuccessful = "VolumeResizeSuccessful"
	// EventVolumeResizeFailed: the apiserver refuses the new size of a volume or of its claim.
	EventVolumeResizeFailed = "VolumeResizeFailed"
	// EventSweepFailed, on a root claim: the trash of its file system could not be emptied.
	EventSweepFailed = "SweepFailed"
	// EventPortCorrected: a volume's port option disagreed with the table and was rewritten.
	EventPortCorrected = "PortCorrected"
	// EventRootVolumeRepaired: a root volume was not as it should be, and was put right.
	EventRootVolumeRepaired = "RootVolumeRepaired"
	// EventFileSystemGone: the volume's file system provably no longer exists, so the volume
	// lost its finalizer. On the targets' ConfigMap: its target left the table.
	EventFileSystemGone = "FileSystemGone"
	// EventVolumeFailedDelete: a volume could not be cleaned up or adopted.
	EventVolumeFailedDelete = "VolumeFailedDelete"
	// EventSharedVolumeRepaired: the claim or the volume of a SharedVolume was not as it should be,
	// and was put right.
	EventSharedVolumeRepaired = "SharedVolumeRepaired"
	// EventVolumeAdopted: a volume of the original system is now managed like all others.
	EventVolumeAdopted = "VolumeAdopted"
	// EventVolumeDeleteSkipped: a released volume's directory has another owner and stays.
	EventVolumeDeleteSkipped = "VolumeDeleteSkipped"
)

// Event reasons of the node agent, on its Node, which users describe when pods of one node cannot mount.
const (
	// EventPortTaken: another process has a tunnel's port.
	EventPortTaken = "PortTaken"
	// EventPortHijacked: the node redirects a tunnel's port to something else, which gets its NFS
	// traffic unencrypted.
	EventPortHijacked = "PortHijacked"
	// EventPortInEphemeralRange: the node's kernel may give ports of tunnels to any process.
	EventPortInEphemeralRange = "PortInEphemeralRange"
	// EventTargetUnusable: a target cannot be served as the table has it.
	EventTargetUnusable = "TargetUnusable"
	// EventConfigurationRefused: stunnel cannot run with a tunnel's configuration; the message says
	// why, and which file it lacks.
	EventConfigurationRefused = "ConfigurationRefused"
	// EventClientCertificateFailed: the client certificate of a tunnel cannot be renewed, and the
	// message says until when the present one serves; or one that was asked for later cannot be
	// made, and the tunnel serves without it.
	EventClientCertificateFailed = "ClientCertificateFailed"
	// EventTunnelUnhealthy: the server does not answer through a tunnel.
	EventTunnelUnhealthy = "TunnelUnhealthy"
	// EventTunnelHealthy: the server answers again.
	EventTunnelHealthy = "TunnelHealthy"
	// EventTunnelMoved: a tunnel leads to another mount target.
	EventTunnelMoved = "TunnelMoved"
	// EventTunnelRestarted: the connections of a tunnel were stuck.
	EventTunnelRestarted = "TunnelRestarted"
	// EventTableMissing: the ConfigMap was deleted; its last table is served.
	EventTableMissing = "TableMissing"
)
