package status

// Causes say why a claim has no volume, or why a volume cannot be cleaned up: in the claim's condition
// Provisioned, in an annotation of the volume, and in one of the event. What waits goes on by itself once the
// cause has ended.
const (
	ClaimRejected      = "ClaimRejected"      // it cannot be accepted as it is
	ClassRefused       = "ClassRefused"       // its storage class cannot be accepted as it is
	GivenUp            = "GivenUp"            // setups failed too often
	WaitsForOtherNode  = "WaitsForOtherNode"  // the scheduler is asked for a node in another zone
	WaitsForSource     = "WaitsForSource"     // of the claim that is to be copied
	WaitsForFileSystem = "WaitsForFileSystem" // one that can be used is not known
	NoMountJob         = "NoMountJob"         // none can begin, or the one that exists does not start
	SetupFailed        = "SetupFailed"        // a mount Job could not make the directory
	CloneFailed        = "CloneFailed"        // a clone Job could not copy the volume
	VolumeRefused      = "VolumeRefused"      // the volume cannot be created
	CleanupFailed      = "CleanupFailed"      // a mount Job could not remove the directory, or may not
	EntryFailed        = "EntryFailed"        // a mount Job could not enter the volume's owner or size in the ledger of its file system, or the apiserver refuses a change of it
	AccessPointFailed  = "AccessPointFailed"  // the access point cannot be created or deleted
	AccessPointMissing = "AccessPointMissing" // it was deleted in AWS: pods cannot mount the volume, whose directory is there
	NotAdopted         = "NotAdopted"         // a volume of the original system is in the way

	// Nothing is wrong with a claim of these.
	WaitsForJob     = "WaitsForJob"     // the next mount Job makes the directory
	DirectoryIsMade = "DirectoryIsMade" // by a mount Job
	PointIsMade     = "PointIsMade"     // the access point of the volume, or its local port
	VolumeIsCopied  = "VolumeIsCopied"  // by a clone Job
)

// causeRemedies are what administrators do about causes.
var causeRemedies = map[string]string{
	ClaimRejected:      "do what the message says; selector and class of a claim cannot be edited: create a new claim",
	ClassRefused:       "parameters cannot be edited: create the class again",
	GivenUp:            "correct the cause that the message names, then edit the claim or its class",
	WaitsForOtherNode:  "create a mount target in the zone of the pod's node, or let pods run elsewhere",
	WaitsForSource:     "create or bind the claim that dataSource names; what waits then goes on by itself",
	WaitsForFileSystem: "see what is wrong with file systems: kubectl efs-stunnel status",
	NoMountJob:         "what the message names: quota, admission or permissions in the installation's namespace, or the root volume",
	SetupFailed:        "do what the message says; it is retried with waits of up to 16 minutes",
	CloneFailed:        "do what the message says; what is copied stays, and it is retried with waits of up to 16 minutes",
	VolumeRefused:      "what the message says: a volume to delete or rename, a policy or webhook, or a permission that the manager's ClusterRole lacks",
	CleanupFailed:      "do what the message says; it is retried",
	EntryFailed:        "do what the message says; it is retried, and pods use the volume meanwhile",
	AccessPointFailed:  "do what the message says: usually a permission of the manager's AWS role, or the limit of access points; it is retried",
	AccessPointMissing: "make a volume of the directory, or the access point again: kubectl efs-stunnel rebuild --access-points says how",
	NotAdopted: "kubectl describe pv of the volume that the message names says why; if its data is not needed, delete its object, " +
		"else set this volume's policy to Retain",
}

// CauseRemedy returns what an administrator does about a cause; "" for one that is unknown.
func CauseRemedy(cause string) string { return causeRemedies[cause] }

// IsProgress reports whether a cause is no problem: what is done takes its time.
func IsProgress(cause string) bool {
	return cause == WaitsForJob || cause == DirectoryIsMade || cause == PointIsMade || cause == VolumeIsCopied
}
