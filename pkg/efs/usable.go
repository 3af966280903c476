package efs

import "fmt"

// Usable says whether nodes in a VPC can mount a file system and write to it. If not, the
// reason is for people, and the same as long as the cause is. No VPC, "", stands for any.
//
//	file system            mount targets             usable
//	available, updating    one available here        yes
//	any other state        -                         no
//	replication copy       -                         no: it is read-only
//	available              none, creating, deleting  no
//	available              in another VPC            no
//	available              without IPv4 address      no
func Usable(fs FileSystem, vpcID string) (reason string, ok bool) {
	if fs.State != Available && fs.State != Updating {
		return fmt.Sprintf("the file system is %s, not available", stateName(fs.State)), false
	}
	if fs.ReplicationDestination {
		return "the file system is the destination of a replication, so it is read-only", false
	}
	if len(fs.MountTargets) == 0 {
		return "the file system has no mount target", false
	}
	local := inVPC(fs.MountTargets, vpcID)
	if len(local) == 0 {
		return fmt.Sprintf("the file system has no mount target in %s, only in %s",
			vpcID, fs.MountTargets[0].VPCID), false
	}
	for _, target := range local {
		if target.Serves(vpcID) {
			return "", true
		}
	}
	return "the file system has no mount target that is available and has an IPv4 address", false
}

// Serves says whether nodes in a VPC can use the mount target now.
func (t MountTarget) Serves(vpcID string) bool {
	return t.State == Available && t.Reachable(vpcID)
}

// Reachable says whether the mount target has an address for nodes in a VPC, whatever its
// state. No VPC, "", stands for any.
func (t MountTarget) Reachable(vpcID string) bool {
	return t.Address.Is4() && (vpcID == "" || t.VPCID == vpcID)
}

func inVPC(targets []MountTarget, vpcID string) []MountTarget {
	var local []MountTarget
	for _, target := range targets {
		if vpcID == "" || target.VPCID == vpcID {
			local = append(local, target)
		}
	}
	return local
}

func stateName(state LifeCycleState) string {
	if state == "" {
		return "in no known state"
	}
	return string(state)
}
