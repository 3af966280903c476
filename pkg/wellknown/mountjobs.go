package wellknown

import "time"

// Mount Jobs.
const (
	// DefaultMountJobBatch is how many operations one Job carries at most.
	DefaultMountJobBatch = 512
	// MaxOperationsBytes bounds their JSON, whatever their number.
	MaxOperationsBytes = 64 << 10
	// DefaultMountJobTimeout is the deadline of a Job's pod.
	DefaultMountJobTimeout = 10 * time.Minute
	// MountJobStartGrace is added to it for the Job itself: for pods that never start.
	MountJobStartGrace = 5 * time.Minute
	// MountJobTTL is how long a finished Job is kept.
	MountJobTTL = time.Hour
	// MountJobMountPath is where the Job's container has the file system's root.
	MountJobMountPath = "/efs"
	// MaxTerminationMessageBytes bounds what a Job's container can report.
	MaxTerminationMessageBytes = 4 << 10
	// SweepProgressInterval is the time between two progress lines while the trash is emptied.
	SweepProgressInterval = 10 * time.Second
)
