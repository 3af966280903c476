package wellknown

// Defaults of StorageClass parameters.
const (
	// DefaultFileSystemID has the manager choose: the file system that already holds the path,
	// else a stable one.
	DefaultFileSystemID = "auto"
	// DefaultBasePath is the directory under which volumes live.
	DefaultBasePath = "/"
	// DefaultPathPattern is the path of a volume below the base path.
	DefaultPathPattern = "${.PVC.namespace}/${volume_name}"
	// DefaultAdoptExisting lets an unowned directory with data become a volume.
	DefaultAdoptExisting = true
	// DefaultDirectoryPerms is the mode of a new directory, in Unix mode bits.
	DefaultDirectoryPerms = 0o777
	// AllocatedGIDPerms is that mode when the directory gets a gid of its own: setgid, so that
	// what is made inside keeps the group.
	AllocatedGIDPerms = 0o2771
	// DefaultGIDMin is the lowest gid that is allocated.
	DefaultGIDMin = 2000
	// LowestGIDMin is the lowest that a class may set. The gids below belong to the system groups
	// of nodes and images, and kubelet gives an allocated gid to every pod that uses the volume.
	LowestGIDMin = 1000
	// DefaultGIDMax is the highest gid that is allocated.
	DefaultGIDMax = 2147483647
	// DefaultKeepDeleted is how long a deleted volume's directory stays in the trash.
	DefaultKeepDeleted = "0"
	// KeepDeletedForever, instead of a duration, keeps it until it is removed by hand.
	KeepDeletedForever = "forever"
)

// Mount options, as mount(8) takes them.
const (
	// DefaultMountOptions are every volume's, under those of its class. They are spelled as the
	// kernel shows them.
	DefaultMountOptions = "vers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
	// RootMountOptions go over these on root volumes. The ledger must be read fresh. A mount Job
	// takes an error as it takes its death, and on a hard mount of a file system that was deleted
	// kubelet would hang for ever.
	RootMountOptions = "soft,lookupcache=none,acdirmin=0,acdirmax=0"
)
