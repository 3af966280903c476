package wellknown

import "time"

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
