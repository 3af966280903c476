package efs

import (
	"cmp"
	"fmt"
	"slices"
)

// Usable reports whether nodes in a VPC can mount a file system and write to it. If not, the reason is a message
// that depends on the cause only. The VPC "" is any.
//
//	file system            mount targets             usable
//	available, updating    one available here        yes
//	any other state        -                         no
//	replication copy       -                         no: it is read-only
//	available              none, creating, deleting  no
//	available              in another VPC            no
//	available              without any address       no
func Usable(fs FileSystem, vpcID string) (reason string, ok bool) {
	if fs.State != Available && fs.State != Updating {
		return fmt.Sprintf("the file system is %s, not available", cmp.Or(string(fs.State), "in no known state")), false
	}
	if fs.ReplicationDestination {
		return "the file system is the destination of a replication, so it is read-only", false
	}
	if len(fs.MountTargets) == 0 {
		return "the file system has no mount target", false
	}
	if slices.ContainsFunc(fs.MountTargets, func(t MountTarget) bool { return t.Serves(vpcID) }) {
		return "", true
	}
	if vpcID != "" && !slices.ContainsFunc(fs.MountTargets, func(t MountTarget) bool { return t.VPCID == vpcID }) {
		return fmt.Sprintf("the file system has no mount target in %s, only in %s", vpcID, fs.MountTargets[0].VPCID), false
	}
	return "the file system has no mount target that is available and has an address", false
}

// Serves reports whether nodes in a VPC can use the mount target now.
func (t MountTarget) Serves(vpcID string) bool {
	return t.State == Available && t.Reachable(vpcID)
}

// Reachable reports whether the mount target has an address for nodes in a VPC, in any state. The VPC "" is any.
func (t MountTarget) Reachable(vpcID string) bool {
	return (t.Address.Is4() || t.IPv6.Is6()) && (vpcID == "" || t.VPCID == vpcID)
}
