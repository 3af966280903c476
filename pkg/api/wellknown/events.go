package wellknown

// Event reasons on the targets' ConfigMap, which make describing it the status page.
const (
	EventFileSystemFound    = "FileSystemFound"    // a file system was added to the table
	EventFileSystemUnusable = "FileSystemUnusable" // a file system is there but cannot serve; the message says why
	// EventFileSystemsExcluded: file systems are listed, and --file-system-tags or --file-system-ids leave none.
	EventFileSystemsExcluded = "FileSystemsExcluded"
	EventFileSystemMissing   = "FileSystemMissing"  // a file system of the table was not in the latest listing; nothing is removed yet
	EventDiscoveryFailed     = "DiscoveryFailed"    // the file systems could not be listed; the table stays as it is
	EventOutOfPorts          = "OutOfPorts"         // a file system has no port, because all are in use
	EventTableFull           = "TableFull"          // a file system has no port, because the ConfigMap is full
	EventTableNotStored      = "TableNotStored"     // the apiserver refuses the table; the stored one stays in force
	EventIdentityLooksWrong  = "IdentityLooksWrong" // the listed file systems seem to be another account's or region's; the table stays as it is
	EventPortConflict        = "PortConflict"       // a port that was asked for is in use; also on the volume that asks for it
	EventAddressConflict     = "AddressConflict"    // two file systems have one address, so one of them may lead to the other's data
	EventAuthorityEnds       = "AuthorityEnds"      // the certificate authority of a target has ended, or will within 30 days
	EventServerRefused       = "ServerRefused"      // the Service of an NFS server is not used; the message says why
	EventServerMissing       = "ServerMissing"      // no Service of an NFS server, and no pin, names a target any longer; it stays as it was
	EventTableUnreadable     = "TableUnreadable"    // the ConfigMap cannot be read; nothing is written until it can
	// EventRootVolumeConflict: an object that is not ours, or another installation's root volume, has
	// a root volume's or root claim's name.
	EventRootVolumeConflict = "RootVolumeConflict"
)

// Event reasons on claims and volumes.
const (
	EventProvisioning          = "Provisioning"          // a mount Job makes the claim's directory, or will when the one that runs has ended
	EventProvisioningSucceeded = "ProvisioningSucceeded" // the claim has its volume
	EventProvisioningFailed    = "ProvisioningFailed"    // a claim was refused, or its setup went wrong
	// EventVolumeResizeSuccessful: a claim has grown, and its volume with it. These two are
	// external-resizer's.
	EventVolumeResizeSuccessful = "VolumeResizeSuccessful"
	EventVolumeResizeFailed     = "VolumeResizeFailed" // the apiserver refuses the new size of a volume or of its claim
	EventSweepFailed            = "SweepFailed"        // on a root claim: the trash of its file system could not be emptied
	EventSurveyFailed           = "SurveyFailed"       // on a root claim: the volumes of its file system could not be counted
	EventVolumeOverRequest      = "VolumeOverRequest"  // a claim's directory holds more than the claim requests; nothing is refused
	EventPortCorrected          = "PortCorrected"      // a volume's port option disagreed with the table and was rewritten
	EventMountOptionHarmful     = "MountOptionHarmful" // a volume has a mount option that has its pods write elsewhere; also on the table
	EventRootVolumeRepaired     = "RootVolumeRepaired" // a root volume was not as it should be, and was put right
	// EventFileSystemGone: the volume's file system provably no longer exists, so the volume
	// lost its finalizer. On the targets' ConfigMap: its target left the table.
	EventFileSystemGone       = "FileSystemGone"
	EventVolumeFailedDelete   = "VolumeFailedDelete"   // a volume could not be cleaned up or adopted
	EventSharedVolumeRepaired = "SharedVolumeRepaired" // the claim or the volume of a SharedVolume was not as it should be, and was put right
	EventVolumeAdopted        = "VolumeAdopted"        // a volume of the original system is now managed like all others
	EventVolumeDeleteSkipped  = "VolumeDeleteSkipped"  // a released volume's directory has another owner and stays
)

// Event reasons of the node agent, on its Node, which users describe when pods of one node cannot mount.
const (
	EventPortTaken            = "PortTaken"            // another process has a tunnel's port
	EventPortHijacked         = "PortHijacked"         // the node redirects a tunnel's port to another process, which gets NFS traffic unencrypted
	EventPortInEphemeralRange = "PortInEphemeralRange" // the node's kernel may give ports of tunnels to any process
	EventTargetUnusable       = "TargetUnusable"       // a target cannot be served as the table has it
	EventConfigurationRefused = "ConfigurationRefused" // stunnel cannot run with a tunnel's configuration; the message says why, and which file it lacks
	// EventClientCertificateFailed: the client certificate of a tunnel cannot be renewed, and the
	// message says until when the present one serves; or one that is needed later cannot be
	// made, and the tunnel serves without it.
	EventClientCertificateFailed = "ClientCertificateFailed"
	EventTunnelUnhealthy         = "TunnelUnhealthy" // the server does not answer through a tunnel
	EventTunnelHealthy           = "TunnelHealthy"   // the server answers again
	EventTunnelMoved             = "TunnelMoved"     // a tunnel leads to another mount target
	EventTunnelRestarted         = "TunnelRestarted" // the connections of a tunnel were stuck
	EventTableMissing            = "TableMissing"    // the ConfigMap was deleted; its last table is served
	EventProblemEnded            = "ProblemEnded"    // one of those that have no event of their own for that
)
