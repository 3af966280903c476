// Package world holds what exists in the stand-in's imitation of AWS: file
// systems, their mount targets and access points, and the nodes that ask.
// It lives in one file and survives a restart.
package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons for which a change of the world is refused.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("conflict")
	ErrInvalid  = errors.New("invalid")
)

// State is EFS's life-cycle state, shared by all three kinds of resources.
type State string

// The life-cycle states that can be set.
const (
	Creating  State = "creating"
	Available State = "available"
	Updating  State = "updating"
	Deleting  State = "deleting"
	Deleted   State = "deleted"
	Errored   State = "error"
)

// States lists all life-cycle states.
func States() []State {
	return []State{Creating, Available, Updating, Deleting, Deleted, Errored}
}

func (s State) check() error {
	if slices.Contains(States(), s) {
		return nil
	}
	names := make([]string, 0, len(States()))
	for _, known := range States() {
		names = append(names, string(known))
	}
	return fmt.Errorf("state %q: want one of %s: %w", s, strings.Join(names, ", "), ErrInvalid)
}

// Zone is an availability zone with the one subnet of the VPC in it.
type Zone struct {
	Name     string `json:"name"` // us-east-1a
	ID       string `json:"id"`   // use1-az1
	SubnetID string `json:"subnetID"`
	CIDR     string `json:"cidr"`
}

// FileSystem is an EFS file system as far as the API shows it.
type FileSystem struct {
	ID            string            `json:"id"`
	CreationToken string            `json:"creationToken"`
	CreatedAt     time.Time         `json:"createdAt"`
	State         State             `json:"state"`
	Zone          string            `json:"zone,omitempty"` // zone name of a One Zone file system, else ""
	Replicating   bool              `json:"replicating"`    // destination of a replication: read-only in AWS
	RequireIAM    bool              `json:"requireIAM"`     // lets only clients in that sign: what a file system policy does in AWS
	Tags          map[string]string `json:"tags,omitempty"` // never changed in place
}

// Name is the Name tag, "" when there is none.
func (f FileSystem) Name() string { return f.Tags["Name"] }

// MountTarget is a file system's address in one zone.
type MountTarget struct {
	ID                 string `json:"id"`
	FileSystemID       string `json:"fileSystemID"`
	Zone               string `json:"zone"` // zone name
	SubnetID           string `json:"subnetID"`
	NetworkInterfaceID string `json:"networkInterfaceID"`
	Address            string `json:"address"`
	State              State  `json:"state"`
}

// PosixUser is whom an access point makes of every user.
type PosixUser struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// CreationInfo says how an access point's missing root directory is made.
type CreationInfo struct {
	OwnerUID    uint32 `json:"ownerUID"`
	OwnerGID    uint32 `json:"ownerGID"`
	Permissions string `json:"permissions"` // octal, "0755"
}

// AccessPoint is an entry into a file system with a root and user of its own.
type AccessPoint struct {
	ID           string        `json:"id"`
	FileSystemID string        `json:"fileSystemID"`
	ClientToken  string        `json:"clientToken"`
	Name         string        `json:"name,omitempty"`
	Path         string        `json:"path"`                   // root directory, absolute inside the file system
	PosixUser    *PosixUser    `json:"posixUser,omitempty"`    // nil: users stay who they are
	CreationInfo *CreationInfo `json:"creationInfo,omitempty"` // nil: the root directory must exist
	State        State         `json:"state"`
}

// Node is a machine of the cluster, known by the source of its requests.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	PodCIDR string `json:"podCIDR"` // its pods ask with addresses of their own
	MAC     string `json:"mac"`
	Zone    string `json:"zone"` // zone name
}

// World is everything that exists at one moment. It is never changed after it
// was published.
type World struct {
	FileSystems  map[string]FileSystem  `json:"fileSystems"`
	MountTargets map[string]MountTarget `json:"mountTargets"`
	AccessPoints map[string]AccessPoint `json:"accessPoints"`
	Nodes        map[string]Node        `json:"nodes"`
}

// MountTargetsOf lists the mount targets of a file system, sorted by zone.
func (w World) MountTargetsOf(fileSystem string) []MountTarget {
	var targets []MountTarget
	for _, t := range w.MountTargets {
		if t.FileSystemID == fileSystem {
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(a, b MountTarget) int { return strings.Compare(a.Zone+a.ID, b.Zone+b.ID) })
	return targets
}

// AccessPointsOf lists the access points of a file system, sorted by id.
func (w World) AccessPointsOf(fileSystem string) []AccessPoint {
	var points []AccessPoint
	for _, p := range w.AccessPoints {
		if p.FileSystemID == fileSystem {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b AccessPoint) int { return strings.Compare(a.ID, b.ID) })
	return points
}
