package wellknown

// Defaults of StorageClass parameters.
const (
	DefaultFileSystemID   = "auto" // has the manager choose: the file system that has the path, else a stable one
	DefaultBasePath       = "/"
	DefaultPathPattern    = "${.PVC.namespace}/${volume_name}"
	DefaultAdoptExisting  = true  // lets a volume use a directory with data that has no owner
	DefaultDirectoryPerms = 0o777 // the mode of a new directory, in Unix mode bits
	// AllocatedGIDPerms is that mode when the directory gets a gid of its own: setgid, so that files
	// in it get the group.
	AllocatedGIDPerms = 0o2771
	DefaultGIDMin     = 2000
	// LowestGIDMin is the lowest that a class may set. The gids below belong to the system groups
	// of nodes and images, and kubelet gives an allocated gid to every pod that uses the volume.
	LowestGIDMin       = 1000
	DefaultGIDMax      = 2147483647
	DefaultKeepDeleted = "0" // not at all
	KeepDeletedForever = "forever"
)

// Mount options, as mount(8) takes them.
const (
	// DefaultMountOptions are every volume's; those of its class override them. They are in the
	// kernel's spelling.
	DefaultMountOptions = "vers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
	// RootMountOptions override these on root volumes. The ledger must be read fresh. With a hard
	// mount of a deleted file system kubelet would hang forever, and a mount Job handles an I/O error
	// like being killed. Nothing like noatime: after a read, the client knows its time of access no more, and so
	// asks the server for all attributes, by which a clone sees that a file has changed while it was read.
	RootMountOptions = "soft,lookupcache=none,acdirmin=0,acdirmax=0"
)
