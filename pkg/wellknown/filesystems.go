package wellknown

// Paths on a file system, counted from its root. They are part of the format: other clusters
// on the same file system read them too.
const (
	// StateDirectory is ours; no volume may be there.
	StateDirectory = "/.efs-stunnel"
	// FileSystemIDFile says which file system this is; written at first use.
	FileSystemIDFile = StateDirectory + "/file-system-id"
	// LockFile is held exclusively while a batch changes ledger or directories.
	LockFile = StateDirectory + "/lock"
	// OwnersDirectory is the ledger: below it <path>/<OwnerPrefix><volume name>, one JSON file
	// for each owner of a path.
	OwnersDirectory = StateDirectory + "/owners"
	// OwnerPrefix distinguishes an owner from a directory, so no component of a path may start with it.
	OwnerPrefix = "@"
	// LeavingSuffix ends the name of an owner whose cleanup has begun.
	LeavingSuffix = ".leaving"
	// RetainedSuffix ends the name of an entry that is no owner any more: volume and claim are
	// gone, and the data was retained. No cleanup of another volume removes it.
	RetainedSuffix = ".retained"
	// TrashDirectory holds deleted directories, each under the name of its volume.
	TrashDirectory = StateDirectory + "/trash"
)

// Limits of names, in bytes.
const (
	// MaxPathBytes bounds a volume's path.
	MaxPathBytes = 1024
	// MaxComponentBytes bounds each component of it.
	MaxComponentBytes = 255
	// MaxClaimNameBytes is where a claim's name is cut when it becomes part of a path.
	MaxClaimNameBytes = 200
)
