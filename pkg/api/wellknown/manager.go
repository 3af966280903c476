package wellknown

import "time"

// Defaults of the manager's settings.
const (
	DefaultPollingInterval      = 300 * time.Second // between two listings of the file systems
	DefaultProvisionBackoff     = 60 * time.Second  // after the first failed setup; then doubled
	DefaultFailedRetryThreshold = 0                 // failed setups until a claim is given up; 0 is never
	DefaultProvisioner          = Domain + "/efs-stunnel"
	DefaultDiscovery            = DiscoveryAWS
	DefaultKubeAPIQPS           = 100 // requests per second, without events and Lease
	DefaultKubeAPIBurst         = 200 // requests above that rate at once
	DefaultManagerHTTPAddress   = ":8080"
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
	DefaultLeaderElect   = true
	DefaultLeaseDuration = 15 * time.Second // after which a standby replaces a silent leader
	DefaultRenewDeadline = 10 * time.Second // after which a leader that cannot renew gives up
	DefaultRetryPeriod   = 2 * time.Second  // between two renewals
)
