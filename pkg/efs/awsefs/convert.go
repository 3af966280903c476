package awsefs

import (
	"net/netip"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

func fileSystem(d types.FileSystemDescription) efs.FileSystem {
	fs := efs.FileSystem{
		ID:               aws.ToString(d.FileSystemId),
		State:            efs.LifeCycleState(d.LifeCycleState),
		AvailabilityZone: aws.ToString(d.AvailabilityZoneName),
		Tags:             make(map[string]string, len(d.Tags)),
	}
	for _, tag := range d.Tags {
		fs.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	fs.Name = fs.Tags["Name"]
	if d.SizeInBytes != nil {
		fs.SizeBytes = d.SizeInBytes.Value
	}
	if p := d.FileSystemProtection; p != nil {
		fs.ReplicationDestination = p.ReplicationOverwriteProtection == types.ReplicationOverwriteProtectionReplicating
	}
	return fs
}

// sourceOf returns the account that owns the listed file systems, and the region; "" if it is unknown. The
// API lists the file systems of one account only.
func sourceOf(owners map[string]bool, region string) string {
	if len(owners) != 1 || owners[""] {
		return ""
	}
	for owner := range owners {
		return owner + "/" + region
	}
	return ""
}

func mountTarget(d types.MountTargetDescription) efs.MountTarget {
	t := efs.MountTarget{
		ID:           aws.ToString(d.MountTargetId),
		FileSystemID: aws.ToString(d.FileSystemId),
		SubnetID:     aws.ToString(d.SubnetId),
		VPCID:        aws.ToString(d.VpcId),
		ZoneName:     aws.ToString(d.AvailabilityZoneName),
		State:        efs.LifeCycleState(d.LifeCycleState),
	}
	// Each is invalid where the mount target has no address of that family.
	t.Address, _ = netip.ParseAddr(aws.ToString(d.IpAddress))
	t.IPv6, _ = netip.ParseAddr(aws.ToString(d.Ipv6Address))
	return t
}

func accessPoint(d types.AccessPointDescription) efs.AccessPoint {
	return efs.AccessPoint{
		ID:           aws.ToString(d.AccessPointId),
		FileSystemID: aws.ToString(d.FileSystemId),
		State:        efs.LifeCycleState(d.LifeCycleState),
	}
}
