package wellknown

import "time"

// Defaults of the manager's settings.
const (
	// DefaultPollingInterval is the time between two listings of the file systems.
	DefaultPollingInterval = 300 * time.Second
	// PollingJitter is the part of the polling interval that is left to chance.
	PollingJitter = 0.10
	// DefaultProvisionBackoff is the first wait after a failed setup; it doubles from there.
	DefaultProvisionBackoff = 60 * time.Second
	// MaxProvisionBackoffFactor, times the first wait, is the longest.
	MaxProvisionBackoffFactor = 16
	// DefaultFailedRetryThreshold is the number of failed setups after which a claim is given
	// up; 0 is never.
	DefaultFailedRetryThreshold = 0
	// DefaultProvisioner is the provisioner of our StorageClasses.
	DefaultProvisioner = Domain + "/efs-stunnel"
	// DefaultDiscovery is DiscoveryAWS.
	DefaultDiscovery = DiscoveryAWS
	// DefaultKubeAPIQPS is in requests per second; events and the Lease do not count.
	DefaultKubeAPIQPS = 100
	// DefaultKubeAPIBurst is the number of requests that may exceed the rate at once.
	DefaultKubeAPIBurst = 200
	// DefaultManagerHTTPAddress serves health and metrics.
	DefaultManagerHTTPAddress = ":8080"
)

// Sources of targets.
const (
	// DiscoveryAWS asks the EFS API.
	DiscoveryAWS = "aws"
	// DiscoveryNone knows pinned targets only, and needs no AWS credentials.
	DiscoveryNone = "none"
)

// MissingListings is the number of successive complete listings that must lack a file system
// before its target can go.
const MissingListings = 3

// Defaults of leader election, on ManagerLease.
const (
	// DefaultLeaderElect has replicas compete for the Lease.
	DefaultLeaderElect = true
	// DefaultLeaseDuration is how long the others wait for a silent leader.
	DefaultLeaseDuration = 15 * time.Second
	// DefaultRenewDeadline is how long a leader tries to renew before it gives up.
	DefaultRenewDeadline = 10 * time.Second
	// DefaultRetryPeriod is the time between two renewals.
	DefaultRetryPeriod = 2 * time.Second
)
