// Package inventory holds the resources of the stand-in's AWS account: file systems, their mount
// targets and access points, and the nodes that send requests. They are kept in one file and
// survive a restart.
package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
)

// State is EFS's life-cycle state. All kinds of resources share one list of them.
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

func (s State) check() error { return oneof.Check("state", s, States()) }

// Zone is an availability zone with the one subnet of the VPC in it.
type Zone struct {
	Name     string `json:"name"` // us-east-1a, as in topology.kubernetes.io/zone
	ID       string `json:"id"`   // use1-az1: the same zone in every account
	SubnetID string `json:"subnetID"`
	CIDR     string `json:"cidr"`
	IPv6CIDR string `json:"ipv6CIDR"`
}

// FindZone finds a zone by its name.
func FindZone(zones []Zone, name string) (Zone, error) {
	names := make([]string, len(zones))
	for i, z := range zones {
		names[i] = z.Name
	}
	if i := slices.Index(names, name); i >= 0 {
		return zones[i], nil
	}
	return Zone{}, fmt.Errorf("zone %q: want one of %s", name, strings.Join(names, ", "))
}

// FileSystem is an EFS file system as far as the API shows it.
type FileSystem struct {
	ID            string            `json:"id"`
	CreationToken string            `json:"creationToken"`
	CreatedAt     time.Time         `json:"createdAt"`
	State         State             `json:"state"`
	Zone          string            `json:"zone,omitempty"` // zone name of a One Zone file system, else ""
	Replicating   bool              `json:"replicating"`    // destination of a replication: read-only in AWS
	RequireIAM    bool              `json:"requireIAM"`     // accepts only clients that sign: what a file system policy does in AWS
	Tags          map[string]string `json:"tags"`           // never changed in place
}

// Name returns the Name tag, "" when there is none.
func (f FileSystem) Name() string { return f.Tags["Name"] }

// AddressType is the families of a mount target's addresses.
type AddressType string

// The types of addresses; the zero value is IPv4.
const (
	IPv4      AddressType = "ipv4"
	IPv6      AddressType = "ipv6"
	DualStack AddressType = "dual"
)

// AddressTypes lists all types.
func AddressTypes() []AddressType { return []AddressType{IPv4, IPv6, DualStack} }

// MountTarget is a file system's address in one zone, of IPv4, IPv6 or both.
type MountTarget struct {
	ID                 string `json:"id"`
	FileSystemID       string `json:"fileSystemID"`
	Zone               string `json:"zone"` // zone name
	SubnetID           string `json:"subnetID"`
	NetworkInterfaceID string `json:"networkInterfaceID"`
	Address            string `json:"address"` // IPv4; "" for none
	IPv6               string `json:"ipv6,omitempty"`
	State              State  `json:"state"`
}

// Addresses lists those that the mount target has, IPv4 first.
func (t MountTarget) Addresses() []string {
	return slices.DeleteFunc([]string{t.Address, t.IPv6}, func(address string) bool { return address == "" })
}

// PosixUser is the user that an access point puts in place of every user.
type PosixUser struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// CreationInfo describes the directory that is made where an access point's root directory is missing.
type CreationInfo struct {
	OwnerUID    uint32 `json:"ownerUID"`
	OwnerGID    uint32 `json:"ownerGID"`
	Permissions string `json:"permissions"` // octal, "0755"
}

// AccessPoint is an entry into a file system with a root directory and a user of its own.
type AccessPoint struct {
	ID           string            `json:"id"`
	FileSystemID string            `json:"fileSystemID"`
	ClientToken  string            `json:"clientToken"`
	Tags         map[string]string `json:"tags"`
	Path         string            `json:"path"`                   // root directory, absolute inside the file system
	PosixUser    *PosixUser        `json:"posixUser,omitempty"`    // nil: users stay who they are
	CreationInfo *CreationInfo     `json:"creationInfo,omitempty"` // nil: the root directory must exist
	State        State             `json:"state"`
}

// Node is a machine of the cluster, recognized by the source address of its requests.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	PodCIDR string `json:"podCIDR"` // its pods send requests from addresses of their own
	MAC     string `json:"mac"`
	Zone    string `json:"zone"` // zone name
}

// Snapshot is all resources at one moment. A published snapshot never changes.
type Snapshot struct {
	FileSystems  map[string]FileSystem  `json:"fileSystems"`
	MountTargets map[string]MountTarget `json:"mountTargets"`
	AccessPoints map[string]AccessPoint `json:"accessPoints"`
	Nodes        map[string]Node        `json:"nodes"`
}

// MountTargetsOf lists the mount targets of a file system, sorted by zone.
func (s Snapshot) MountTargetsOf(fileSystem string) []MountTarget {
	return sorted(s.MountTargets,
		func(t MountTarget) bool { return t.FileSystemID == fileSystem },
		func(t MountTarget) string { return t.Zone + t.ID })
}

// AccessPointsOf lists the access points of a file system, sorted by id.
func (s Snapshot) AccessPointsOf(fileSystem string) []AccessPoint {
	return sorted(s.AccessPoints,
		func(p AccessPoint) bool { return p.FileSystemID == fileSystem },
		func(p AccessPoint) string { return p.ID })
}

func sorted[R any](resources map[string]R, wanted func(R) bool, key func(R) string) []R {
	var list []R
	for _, r := range resources {
		if wanted(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b R) int { return strings.Compare(key(a), key(b)) })
	return list
}
