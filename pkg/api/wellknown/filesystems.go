package wellknown

// Paths on a file system, from its root. Other clusters with the same file system read them, too.
const (
	StateDirectory   = "/.efs-stunnel"                    // no volume may be in it
	FileSystemIDFile = StateDirectory + "/file-system-id" // written at first use
	LockFile         = StateDirectory + "/lock"           // held exclusively while a batch changes ledger or directories
	// OwnersDirectory is the ledger: below it <path>/<OwnerPrefix><volume name>, one JSON file
	// for each owner of a path.
	OwnersDirectory = StateDirectory + "/owners"
	// OwnerPrefix distinguishes an owner from a directory: no component of a path may start with it.
	OwnerPrefix   = "@"
	LeavingSuffix = ".leaving" // ends the name of an owner whose cleanup has begun
	// RetainedSuffix ends the name of the entry of a former owner whose volume and claim are gone and
	// whose data is retained. No cleanup of another volume removes the directory.
	RetainedSuffix = ".retained"
	TrashDirectory = StateDirectory + "/trash" // holds deleted directories, each under the name of its volume, in a directory for the time when they are due
)

// Limits of names, in bytes.
const (
	MaxPathBytes      = 1024 // of a volume's path
	MaxComponentBytes = 255  // of each component of it
	MaxClaimNameBytes = 200  // of a claim's name in a path; longer names are cut
)
