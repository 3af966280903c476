// Package wellknown has the names and numbers that users, manifests and our programs must agree on:
// annotations, labels, finalizers, event reasons, installed names, defaults.
//
// It imports the standard library only, because mountjob links it, too.
package wellknown

// Domains of keys. A key is below a domain when its prefix is the domain or ends in "." and the domain.
const (
	Domain = "gnuthought.com" // ours; claims may not copy keys below it to their volumes
	// KubernetesDomain is Kubernetes'. A provisioner below it is refused, because the binder would
	// treat its volumes as those of an in-tree provisioner.
	KubernetesDomain      = "kubernetes.io"
	KubernetesShortDomain = "k8s.io" // Kubernetes' other domain; claims may not copy keys below either
)

// keyPrefix starts all of our annotations, labels, finalizers and taints.
const keyPrefix = "efs-stunnel." + Domain + "/"

// HomeURL is the address of the repository. It is not known yet: this one is made of the module's name. hack/address
// writes another one here, and wherever else the repository has this one; a test finds places that invent one.
const HomeURL = "https://gnuthought.com/efs-stunnel"

// DocsURL is the address of the documentation, as in the alerts' runbooks. Texts for users lead there: they have no
// copy of the repository.
const DocsURL = HomeURL + "/docs/"

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
	TargetsConfigMap = "efs-stunnel"        // written by the manager
	ViewConfigMap    = "efs-stunnel-view"   // its compressed copy, written by the manager, and watched by node agents
	PinnedConfigMap  = "efs-stunnel-pinned" // the administrator's, merged over discovered targets
	TargetsKey       = "efs-stunnel.yaml"   // the data key of both
)

// Objects of NFS servers in the manager's namespace.
const (
	ServerAuthoritySecret = "efs-stunnel-nfs-ca"     // the authority of servers and of their clients
	ServerClientSecret    = "efs-stunnel-nfs-client" // the certificate and key that agents show to servers
	// ClientCertificateDir is where agents have ServerClientSecret mounted.
	ClientCertificateDir = "/etc/efs-stunnel/nfs-client"
)

// ServerCertificateSecret returns the name of the Secret with the certificate of a server, by that of its Service.
func ServerCertificateSecret(service string) string { return service + "-tls" }

// ServerHost returns the DNS name that the certificate of a server must have, by its Service.
func ServerHost(service, namespace string) string { return service + "." + namespace + ".svc" }

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
	// QuestionPrefix and random characters name a volume by which the manager asks what kube-controller-manager has observed.
	QuestionPrefix = "efs-question-"
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
