package wellknown

// Labels that a claim asks for in spec.selector.matchLabels, and that its volume then has.
const (
	// LabelVolumeName is the directory's name; claims that share it share the data.
	LabelVolumeName = "volume_name"
	// LabelFileSystemID is a file system's id: on claims a wish, on volumes always set. On
	// root volumes it serves readers of the original system's format and protects nothing.
	LabelFileSystemID = "file_system_id"
	// LabelReclaimPolicy is Delete or Retain, and overrides the class.
	LabelReclaimPolicy = "reclaim_policy"
)

// LabelRootKey is on root volumes for readers of the original system's format, and protects
// nothing.
const LabelRootKey = "root_key"

// Labels of mount Jobs.
const (
	// LabelComponent is the original system's label, with the value ComponentWorker.
	LabelComponent = "component"
	// ComponentWorker is the value of LabelComponent.
	ComponentWorker = "efs-worker"
	// LabelAppComponent is the label that Kubernetes recommends, with the value
	// AppComponentMountJob.
	LabelAppComponent = "app.kubernetes.io/component"
	// AppComponentMountJob is the value of LabelAppComponent.
	AppComponentMountJob = "mount-job"
	// LabelMountJobFileSystemID is the id of the one file system that the Job works on.
	LabelMountJobFileSystemID = keyPrefix + "file-system-id"
)

// TaintAgentNotReady keeps pods off a node until its tunnels serve. The agent removes it if
// --remove-startup-taint is set.
const TaintAgentNotReady = keyPrefix + "agent-not-ready"
