package wellknown

// Names of the objects that the manifests install: the original system's own.
const (
	// Namespace holds everything that is installed, and is the manager's outside a cluster.
	Namespace = "efs-stunnel"
	// ManagerDeployment runs the manager's replicas.
	ManagerDeployment = "efs-manager"
	// NodeDaemonSet runs the node agent and its supervisor on every node.
	NodeDaemonSet = "efs-stunnel"
	// ManagerServiceAccount is the manager's.
	ManagerServiceAccount = "efs-manager"
	// NodeServiceAccount is the node agent's.
	NodeServiceAccount = "efs-stunnel"
	// WorkerServiceAccount is the mount Jobs'; its token is never mounted.
	WorkerServiceAccount = "efs-worker"
	// StorageClass is the class that comes with the installation.
	StorageClass = "efs-stunnel"
	// ManagerLease is the Lease that the manager's replicas compete for.
	ManagerLease = "efs-manager"
)

// ConfigMaps with the table of targets.
const (
	// TargetsConfigMap is the table that the manager writes and every node agent watches.
	TargetsConfigMap = "efs-stunnel"
	// PinnedConfigMap is the administrator's table, merged over what is discovered.
	PinnedConfigMap = "efs-stunnel-pinned"
	// TargetsKey is the data key of both, with the table as YAML.
	TargetsKey = "efs-stunnel.yaml"
)

// Names of the objects that the manager creates.
const (
	// RootVolumePrefix and a file system id name its root volume and its root claim.
	RootVolumePrefix = "efs-stunnel-"
	// RootStorageClass is the class name of root volumes. No such StorageClass exists, so
	// nothing provisions for it.
	RootStorageClass = "efs-stunnel-system"
	// SharedVolumePrefix, a namespace, "-" and the name of a SharedVolume in it name its volume.
	SharedVolumePrefix = "pv-"
	// SharedClaimPrefix and the name of a SharedVolume name its claim.
	SharedClaimPrefix = "pvc-"
	// VolumePrefix and a claim's uid name the claim's volume.
	VolumePrefix = "pvc-"
	// MountJobPrefix, a file system id, "-" and a number of five or more digits name a mount Job.
	MountJobPrefix = "efs-mount-"
	// SweepJobPrefix names the Jobs that empty the trash, as MountJobPrefix names mount Jobs.
	SweepJobPrefix = "efs-sweep-"
)
