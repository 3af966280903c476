// Package efs has the file systems, mount targets and access points of Amazon EFS, and the listing
// that one poll of its API returns. Package efs/awsefs calls the API.
//
// It decides which file systems can serve a cluster (Usable), and which the administrator allows (Filter).
package efs

import (
	"maps"
	"net/netip"
	"slices"
)

// LifeCycleState is the state of a file system, mount target or access point.
type LifeCycleState string

// The states of the API. Any other value is treated as Error.
const (
	Creating  LifeCycleState = "creating"
	Available LifeCycleState = "available"
	Updating  LifeCycleState = "updating"
	Deleting  LifeCycleState = "deleting"
	Deleted   LifeCycleState = "deleted"
	Error     LifeCycleState = "error"
)

// FileSystem is a file system with its mount targets.
type FileSystem struct {
	ID               string
	Name             string // its Name tag, or ""
	State            LifeCycleState
	AvailabilityZone string // the zone's name for a One Zone file system, else ""
	// ReplicationDestination says that another file system overwrites this one, so that it is
	// read-only here.
	ReplicationDestination bool
	SizeBytes              int64
	Tags                   map[string]string
	// MountTargets are all of them, in any state; nil where they could not be read, see Listing.Failed.
	MountTargets []MountTarget
}

// MountTarget is a file system's address in one subnet, of IPv4, IPv6 or both.
type MountTarget struct {
	ID           string
	FileSystemID string
	SubnetID     string
	VPCID        string
	ZoneName     string     // us-east-1a; the zone of that name differs between accounts
	Address      netip.Addr // IPv4; invalid when the mount target has none
	IPv6         netip.Addr // invalid when the mount target has none
	State        LifeCycleState
}

// AccessPoint is an entry into a file system with a root directory of its own.
type AccessPoint struct {
	ID           string
	FileSystemID string
	State        LifeCycleState
}

// Clone returns a copy that shares nothing with the original.
func (fs FileSystem) Clone() FileSystem {
	fs.Tags = maps.Clone(fs.Tags)
	fs.MountTargets = slices.Clone(fs.MountTargets)
	return fs
}
