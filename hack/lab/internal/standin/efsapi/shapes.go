package efsapi

import (
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// The JSON shapes of the API's answers.
type (
	fileSystemList struct {
		FileSystems []fileSystem
		Marker      string `json:",omitempty"`
		NextMarker  string `json:",omitempty"`
	}
	fileSystem struct {
		AvailabilityZoneID   string `json:"AvailabilityZoneId,omitempty"`
		AvailabilityZoneName string `json:",omitempty"`
		CreationTime         int64  // seconds since 1970
		CreationToken        string
		Encrypted            bool
		FileSystemArn        string
		FileSystemID         string `json:"FileSystemId"`
		FileSystemProtection protection
		LifeCycleState       inventory.State
		Name                 string `json:",omitempty"`
		NumberOfMountTargets int
		OwnerID              string `json:"OwnerId"`
		PerformanceMode      string
		SizeInBytes          size
		Tags                 []tag
		ThroughputMode       string
	}
	protection struct{ ReplicationOverwriteProtection string }
	size       struct {
		Value           int64
		ValueInIA       int64
		ValueInStandard int64
		ValueInArchive  int64
	}
	tag             struct{ Key, Value string }
	mountTargetList struct {
		MountTargets []mountTarget
		Marker       string `json:",omitempty"`
		NextMarker   string `json:",omitempty"`
	}
	mountTarget struct {
		AvailabilityZoneID   string `json:"AvailabilityZoneId"`
		AvailabilityZoneName string
		FileSystemID         string `json:"FileSystemId"`
		IPAddress            string `json:"IpAddress,omitempty"`
		IPv6Address          string `json:"Ipv6Address,omitempty"`
		LifeCycleState       inventory.State
		MountTargetID        string `json:"MountTargetId"`
		NetworkInterfaceID   string `json:"NetworkInterfaceId"`
		OwnerID              string `json:"OwnerId"`
		SubnetID             string `json:"SubnetId"`
		VPCID                string `json:"VpcId"`
	}
	accessPointList struct {
		AccessPoints []accessPoint
		NextToken    string `json:",omitempty"`
	}
	accessPoint struct {
		AccessPointArn string
		AccessPointID  string `json:"AccessPointId"`
		ClientToken    string
		FileSystemID   string `json:"FileSystemId"`
		LifeCycleState inventory.State
		Name           string     `json:",omitempty"`
		OwnerID        string     `json:"OwnerId"`
		PosixUser      *posixUser `json:",omitempty"`
		RootDirectory  rootDirectory
		Tags           []tag
	}
	posixUser struct {
		UID uint32 `json:"Uid"`
		GID uint32 `json:"Gid"`
	}
	rootDirectory struct {
		CreationInfo *creationInfo `json:",omitempty"`
		Path         string
	}
	creationInfo struct {
		OwnerUID    uint32 `json:"OwnerUid"`
		OwnerGID    uint32 `json:"OwnerGid"`
		Permissions string
	}
)

// meteredSize is the size that EFS reports for an empty file system.
const meteredSize = 6144

func (s *Server) fileSystem(w inventory.Snapshot, fs inventory.FileSystem) fileSystem {
	answer := fileSystem{
		CreationTime:         fs.CreatedAt.Unix(),
		CreationToken:        fs.CreationToken,
		Encrypted:            true,
		FileSystemArn:        s.arn("file-system/" + fs.ID),
		FileSystemID:         fs.ID,
		FileSystemProtection: protection{"ENABLED"},
		LifeCycleState:       fs.State,
		Name:                 fs.Name(),
		NumberOfMountTargets: len(w.MountTargetsOf(fs.ID)),
		OwnerID:              s.AccountID,
		PerformanceMode:      "generalPurpose",
		SizeInBytes:          size{Value: meteredSize, ValueInStandard: meteredSize},
		Tags:                 tags(fs.Tags),
		ThroughputMode:       "elastic",
	}
	if fs.Replicating {
		answer.FileSystemProtection = protection{"REPLICATING"}
	}
	if zone, err := s.Inventory.Zone(fs.Zone); err == nil {
		answer.AvailabilityZoneName, answer.AvailabilityZoneID = zone.Name, zone.ID
	}
	return answer
}

func (s *Server) mountTarget(t inventory.MountTarget) mountTarget {
	zone, _ := s.Inventory.Zone(t.Zone) // checked at creation
	return mountTarget{
		AvailabilityZoneID: zone.ID, AvailabilityZoneName: t.Zone, FileSystemID: t.FileSystemID,
		IPAddress: t.Address, IPv6Address: t.IPv6, LifeCycleState: t.State, MountTargetID: t.ID,
		NetworkInterfaceID: t.NetworkInterfaceID, OwnerID: s.AccountID, SubnetID: t.SubnetID, VPCID: s.VPCID,
	}
}

func (s *Server) accessPoint(p inventory.AccessPoint) accessPoint {
	answer := accessPoint{
		AccessPointArn: s.arn("access-point/" + p.ID), AccessPointID: p.ID, ClientToken: p.ClientToken,
		FileSystemID: p.FileSystemID, LifeCycleState: p.State, Name: p.Tags["Name"], OwnerID: s.AccountID,
		RootDirectory: rootDirectory{Path: p.Path}, Tags: tags(p.Tags),
	}
	if p.PosixUser != nil {
		answer.PosixUser = &posixUser{p.PosixUser.UID, p.PosixUser.GID}
	}
	if c := p.CreationInfo; c != nil {
		answer.RootDirectory.CreationInfo = &creationInfo{c.OwnerUID, c.OwnerGID, c.Permissions}
	}
	return answer
}

func (s *Server) arn(resource string) string {
	return "arn:aws:elasticfilesystem:" + s.Region + ":" + s.AccountID + ":" + resource
}

func tags(m map[string]string) []tag {
	list := make([]tag, 0, len(m))
	for key, value := range m {
		list = append(list, tag{key, value})
	}
	slices.SortFunc(list, func(a, b tag) int { return strings.Compare(a.Key, b.Key) })
	return list
}
