package wellknown

import "time"

// Defaults of the manager's settings.
const (
	DefaultProvisionBackoff = 60 * time.Second // after the first failed setup; then doubled
	DefaultProvisioner      = Domain + "/efs-stunnel"
)

// Limits of discovery and retries.
const (
	PollingJitter = 0.10 // the maximum random part that is added to the polling interval
	// MaxProvisionBackoffFactor times the first backoff is the longest.
	MaxProvisionBackoffFactor = 16
	// MissingListings is the number of successive complete listings that must lack a file system
	// before its target is removed.
	MissingListings = 3
)

// Sources of targets.
const (
	DiscoveryAWS  = "aws"
	DiscoveryNone = "none" // pinned targets only, without AWS credentials
)

// Defaults of leader election, on ManagerLease.
const (
	DefaultLeaseDuration = 15 * time.Second // after which a standby replaces a silent leader
	DefaultRenewDeadline = 10 * time.Second // after which a leader that cannot renew gives up
	DefaultRetryPeriod   = 2 * time.Second  // between two renewals
)

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

// Limits and times of mount Jobs.
const (
	DefaultMountJobBatch       = 512              // operations of one Job
	MaxOperationsBytes         = 64 << 10         // of their JSON
	DefaultMountJobTimeout     = 10 * time.Minute // of a Job's pod
	MountJobStartGrace         = 5 * time.Minute  // added to it for the Job, whose pod may never start
	MountJobTTL                = time.Hour        // of a finished Job
	MountJobMountPath          = "/efs"           // of the file system's root in the container
	MaxTerminationMessageBytes = 4 << 10          // of the report
	SweepProgressInterval      = 10 * time.Second // between two progress lines of a sweep
	SurveyTimeout              = 6 * time.Hour    // of a survey Job's pod, for which nothing waits
	CloneTimeout               = 6 * time.Hour    // of a clone Job's pod; the next one goes on
	CloneProgressInterval      = 10 * time.Second // between two progress lines of a clone
	MaxClones                  = 4                // clone Jobs that run at once on a file system
	DefaultWorkerLinger        = time.Minute      // for which a worker waits for more operations; 0 is not at all
	DefaultWorkerPort          = 8443             // where the leader listens for workers
	WorkerAudience             = "efs-stunnel-worker"
)

// Defaults of the node agent's settings.
const (
	// DefaultStunnelConf is the prefix of the tunnels' files: stunnel's configuration adds "." and
	// the id of the file system, and for an access point "." and the id of the access point.
	DefaultStunnelConf = "/tmp/stunnel.conf"
	// DefaultAgentHTTPAddress can be reached from its own node only.
	DefaultAgentHTTPAddress  = LoopbackAddress + ":20488"
	DefaultAgentProbeTimeout = 4 * time.Second // the timeout of kubelet's probes, below the 5 s of the manifests
	// FirstHealthWait is how long a starting agent waits for healthy tunnels until it reports ready
	// without them.
	FirstHealthWait = 60 * time.Second
)

// Candidates for stunnel's program, in this order.
const (
	StunnelPath       = "/usr/local/bin/stunnel" // in our image
	StunnelSystemPath = "/usr/bin/stunnel"       // in distributions
	StunnelCommand    = "stunnel4"               // Debian's name, looked up in PATH
)

// AgentUser is the user and group of the node agent's pods: deploy/kustomize/base/agent.yaml.
const AgentUser = 20490

// Local ports, all on LoopbackAddress.
const (
	DefaultBasePort  = 20490
	DefaultPortCount = 1000
	MinPort          = 1024 // no privileged port
	MaxPort          = 65535
	// NFSPort is never a target's: an inline NFS volume names no port and uses this one, so that a
	// tunnel there would be open to all pods.
	NFSPort       = 2049
	AgentHTTPPort = 20488 // of the node agent, so never a target's
	MinNodePort   = 30000 // of Kubernetes' default range of NodePort services
	MaxNodePort   = 32767
)

// Loopback addresses of a node.
const (
	LoopbackAddress = "127.0.0.1" // the NFS server of every volume: the node's end of the tunnel
	StandbyAddress  = "127.0.0.2" // where a new agent probes its tunnels while the old one still has the ports
)
