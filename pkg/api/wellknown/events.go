package wellknown

// Reasons of events. docs/reference/events.md is generated from their comments: the object that an event is about, its
// type if that is not Warning, and what it means. Where no condition has the reason, the second sentence says what to do.
// Those on the targets' ConfigMap make describing it the status page.
const (
	EventFileSystemFound    = "FileSystemFound"    // on the ConfigMap, Normal: a file system was added to the table, or is listed again
	EventFileSystemUnusable = "FileSystemUnusable" // on the ConfigMap: a file system is there but cannot serve; the message says why
	// EventFileSystemsExcluded, on the ConfigMap: file systems are listed, and --file-system-tags or --file-system-ids leave
	// none, so no claim can be served.
	EventFileSystemsExcluded = "FileSystemsExcluded"
	EventFileSystemMissing   = "FileSystemMissing"  // on the ConfigMap: a file system of the table was not in the latest listing; nothing is removed yet
	EventDiscoveryFailed     = "DiscoveryFailed"    // on the ConfigMap: the file systems could not be listed; the table stays as it is
	EventOutOfPorts          = "OutOfPorts"         // on the ConfigMap: a file system has no port, because all are in use
	EventTableFull           = "TableFull"          // on the ConfigMap: a target has no port, because the table would exceed 900 KiB; the others are served
	EventTableNotStored      = "TableNotStored"     // on the ConfigMap: the apiserver refuses the table; the stored one stays in force, and what is new waits
	EventIdentityLooksWrong  = "IdentityLooksWrong" // on the ConfigMap: the listed file systems seem to be another account's or region's; the table stays as it is
	EventPortConflict        = "PortConflict"       // on the ConfigMap, volume: a port that was asked for is in use, or a NodePort Service can take assigned ones; of a volume: its port is another file system's, whose data its pods would see
	EventAddressConflict     = "AddressConflict"    // on the ConfigMap: two file systems have one address, so one of them may lead to the other's data
	EventAuthorityEnds       = "AuthorityEnds"      // on the ConfigMap: the certificate authority of a target has ended, or will within 30 days
	EventServerRefused       = "ServerRefused"      // on the Service, ConfigMap: the Service of an NFS server is not used; the message says why
	EventServerMissing       = "ServerMissing"      // on the ConfigMap: no Service of an NFS server, and no pin, names a target any longer; it stays as it was
	EventServerNotReady      = "ServerNotReady"     // on the Service, ConfigMap: no pod of an NFS server is ready, so pods that use its volumes may wait; its target stays as it is
	EventSizesNotEnforced    = "SizesNotEnforced"   // on the Service, ConfigMap: an NFS server is to enforce the sizes of volumes, and its disk cannot; everything else works
	EventTableUnreadable     = "TableUnreadable"    // on the ConfigMap, node: the ConfigMap cannot be read; nothing is written until it can, and the last table is served
	// EventRootVolumeConflict, on the ConfigMap: an object that is not ours, or another installation's root volume, has
	// a root volume's or root claim's name. No mount Job runs on that file system until then.
	EventRootVolumeConflict = "RootVolumeConflict"
)

// Reasons of events on claims and volumes. Those of resizing are external-resizer's.
const (
	EventProvisioning           = "Provisioning"           // on the claim, Normal: a mount Job makes the directory, or will when the one that runs has ended
	EventProvisioningSucceeded  = "ProvisioningSucceeded"  // on the claim, SharedVolume, Normal: the claim has its volume
	EventProvisioningFailed     = "ProvisioningFailed"     // on the claim, SharedVolume: it is refused or waits, or its setup failed. The message says what to do
	EventVolumeResizeSuccessful = "VolumeResizeSuccessful" // on the claim, Normal: it has grown, and its volume with it
	EventVolumeResizeFailed     = "VolumeResizeFailed"     // on the claim: the apiserver refuses the new size, or an NFS server of one's own could not be told it. Do what the message says
	EventSweepFailed            = "SweepFailed"            // on the root claim: the trash of a file system could not be emptied, or a directory in it has no readable record
	EventSurveyFailed           = "SurveyFailed"           // on the root claim: the volumes of a file system could not be counted
	EventVolumeOverRequest      = "VolumeOverRequest"      // on the claim: its directory holds more than it requests; nothing is refused. Delete data, or request more
	EventPortCorrected          = "PortCorrected"          // on the volume: its port option disagreed with the table and was rewritten. Restart pods that mounted it before
	EventMountOptionHarmful     = "MountOptionHarmful"     // on the volume, ConfigMap: a volume has a mount option that has its pods write elsewhere
	EventRootVolumeRepaired     = "RootVolumeRepaired"     // on the root volume: it was edited or deleted, and was put right. Find out who edits it
	// EventFileSystemGone, on the ConfigMap, volume, Normal, Warning: the file system provably no longer exists; its target
	// left the table, and its volumes can be deleted.
	EventFileSystemGone       = "FileSystemGone"
	EventVolumeFailedDelete   = "VolumeFailedDelete"   // on the volume: it could not be cleaned up, or can never be. The message says what to do
	EventVolumeEntryFailed    = "VolumeEntryFailed"    // on the volume: its owner or its size could not be entered in the ledger of its file system, or its object not be changed; pods use it meanwhile. The message says what to do
	EventAccessPointMissing   = "AccessPointMissing"   // on the volume: its access point was deleted in AWS, so pods cannot mount it; its directory is there. The message says where
	EventSharedVolumeRepaired = "SharedVolumeRepaired" // on the SharedVolume: its claim or volume was edited or deleted, and was put right. Find out who edits it
	EventVolumeAdopted        = "VolumeAdopted"        // on the volume, Normal: a volume of the original system is now managed like all others
	EventVolumeDeleteSkipped  = "VolumeDeleteSkipped"  // on the volume, Warning, Normal: it is deleted, and its directory or access point stays; the message says why
)

// Reasons of events of the node agent on its Node, which users describe when pods of one node cannot mount.
const (
	EventPortTaken            = "PortTaken"            // on the node: another process has a tunnel's port; its volumes cannot be mounted there
	EventPortHijacked         = "PortHijacked"         // on the node: the node redirects a tunnel's port to another process, which gets NFS traffic unencrypted
	EventPortInEphemeralRange = "PortInEphemeralRange" // on the node: the node's kernel may give ports of tunnels to any process
	EventTargetUnusable       = "TargetUnusable"       // on the node: a target cannot be served as the table has it
	EventConfigurationRefused = "ConfigurationRefused" // on the node: stunnel cannot run with a tunnel's configuration; the message says why, and which file it lacks
	// EventClientCertificateFailed, on the node: the client certificate of a tunnel cannot be renewed, and the
	// message says until when the present one serves; or one that is needed later cannot be
	// made, and the tunnel serves without it.
	EventClientCertificateFailed = "ClientCertificateFailed"
	EventTunnelUnhealthy         = "TunnelUnhealthy" // on the node: the server does not answer through a tunnel
	EventTunnelHealthy           = "TunnelHealthy"   // on the node, Normal: the server has answered again for 30 s
	EventTunnelMoved             = "TunnelMoved"     // on the node, Warning, Normal: a tunnel uses another mount target; Normal: the nearest again. Check the one before
	EventTunnelRestarted         = "TunnelRestarted" // on the node: the connections of a tunnel were stuck, or it closed new ones, so it was restarted
	EventTableMissing            = "TableMissing"    // on the node: the ConfigMap was deleted; its last table is served
	EventProblemEnded            = "ProblemEnded"    // on the node, ConfigMap, Normal: a problem without an event of its own for its end has ended; the message names it
)
