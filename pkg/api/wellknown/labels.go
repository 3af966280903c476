package wellknown

// Labels that a claim requests in spec.selector.matchLabels, and that its volume then has.
const (
	// LabelVolumeName is the directory's name; claims that share it share the data.
	LabelVolumeName = "volume_name"
	// LabelFileSystemID is a file system's id: optional on claims, and set on all volumes. On root
	// volumes it is for readers of the original system's format and protects nothing.
	LabelFileSystemID = "file_system_id"
	// LabelReclaimPolicy is Delete or Retain, and overrides the class.
	LabelReclaimPolicy = "reclaim_policy"
)

// LabelRootKey is on root volumes for readers of the original system's format, and protects nothing.
const LabelRootKey = "root_key"

// LabelProgram is on the pods of the manager and of the node agents, and on the Services of their metrics: the
// programs find each other by it. Labels that everybody has, such as app.kubernetes.io/name, are often
// replaced in all objects of an installation.
const (
	LabelProgram   = keyPrefix + "program"
	ProgramManager = "manager"
	ProgramAgent   = "node-agent"
)

// Labels of mount Jobs, and their values.
const (
	LabelComponent            = "component" // of the original system
	ComponentWorker           = "efs-worker"
	LabelAppComponent         = "app.kubernetes.io/component"
	AppComponentMountJob      = "mount-job"
	LabelMountJobFileSystemID = keyPrefix + "file-system-id"
	// LabelSetUp and LabelCleanedUp count the directories that a Job was sent to set up and to clean up.
	LabelSetUp     = keyPrefix + "set-up"
	LabelCleanedUp = keyPrefix + "cleaned-up"
)

// TaintAgentNotReady keeps pods off a node until its tunnels serve. The agent removes it if
// --remove-startup-taint is set.
const TaintAgentNotReady = keyPrefix + "agent-not-ready"
