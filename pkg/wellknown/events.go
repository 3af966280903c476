package wellknown

// Event reasons on the targets' ConfigMap, which make describing it the status page.
const (
	// EventFileSystemFound: a file system got a place in the table.
	EventFileSystemFound = "FileSystemFound"
	// EventFileSystemUnusable: a file system is there but cannot serve; the message says why.
	EventFileSystemUnusable = "FileSystemUnusable"
	// EventFileSystemMissing: a file system of the table was not in the latest listing; nothing
	// is removed yet.
	EventFileSystemMissing = "FileSystemMissing"
	// EventDiscoveryFailed: the file systems could not be listed; the table stays as it is.
	EventDiscoveryFailed = "DiscoveryFailed"
)

// Event reasons on claims and volumes.
const (
	// EventProvisioningFailed: a claim was refused, or its setup went wrong.
	EventProvisioningFailed = "ProvisioningFailed"
	// EventPortCorrected: a volume's port option disagreed with the table and was rewritten.
	EventPortCorrected = "PortCorrected"
	// EventFileSystemGone: the volume's file system provably no longer exists, so the volume
	// lost its finalizer.
	EventFileSystemGone = "FileSystemGone"
	// EventVolumeDeleteSkipped: a released volume's directory has another owner and stays.
	EventVolumeDeleteSkipped = "VolumeDeleteSkipped"
)
