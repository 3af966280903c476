package wellknown

// Names of the objects that the manifests install. They are those of the original system.
const (
	Namespace             = "efs-stunnel" // also the manager's outside a cluster
	ManagerDeployment     = "efs-manager"
	NodeDaemonSet         = "efs-stunnel" // node agent and supervisor
	AgentContainer        = "agent"       // of its pods
	ManagerServiceAccount = "efs-manager"
	NodeServiceAccount    = "efs-stunnel"
	WorkerServiceAccount  = "efs-worker" // of mount Jobs, which never mount its token
	StorageClass          = "efs-stunnel"
	ManagerLease          = "efs-manager"
)

// ConfigMaps with the table of targets.
const (
	TargetsConfigMap = "efs-stunnel"        // written by the manager, and watched by node agents
	PinnedConfigMap  = "efs-stunnel-pinned" // the administrator's, merged over discovered targets
	TargetsKey       = "efs-stunnel.yaml"   // the data key of both
)

// Names of the objects that the manager creates.
const (
	// RootVolumePrefix and a file system id name its root volume and its root claim.
	RootVolumePrefix = "efs-stunnel-"
	// RootStorageClass is the class name of root volumes. No StorageClass has this name, so that
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
	// SweepJobPrefix does the same for the Jobs that empty the trash.
	SweepJobPrefix = "efs-sweep-"
	// SurveyJobPrefix does the same for the Jobs that count what volumes use.
	SurveyJobPrefix = "efs-usage-"
	// CloneJobPrefix does the same for the Jobs that copy volumes, one Job for each.
	CloneJobPrefix = "efs-clone-"
	// LedgerJobPrefix, a file system id, "-" and five random characters name a Job of the plugin of kubectl.
	LedgerJobPrefix = "efs-ledger-"
)
