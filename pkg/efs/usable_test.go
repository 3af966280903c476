package efs_test

import (
	"net/netip"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

func mountTarget(vpc string, state efs.LifeCycleState) efs.MountTarget {
	return efs.MountTarget{SubnetID: "subnet-a", VPCID: vpc, State: state, Address: netip.MustParseAddr("10.0.0.4")}
}

func TestUsable(t *testing.T) {
	ours := mountTarget("vpc-1", efs.Available)
	without := ours
	without.Address = netip.Addr{}
	ipv6 := without
	ipv6.IPv6 = netip.MustParseAddr("fd00::4")
	tests := map[string]struct {
		state   efs.LifeCycleState
		replica bool
		targets []efs.MountTarget
		vpc     string
		reason  string // "" when usable
	}{
		"available with an available mount target": {
			state: efs.Available, targets: []efs.MountTarget{ours}, vpc: "vpc-1",
		},
		"updating serves on": {
			state: efs.Updating, targets: []efs.MountTarget{ours}, vpc: "vpc-1",
		},
		"one good mount target is enough": {
			state: efs.Available, targets: []efs.MountTarget{mountTarget("vpc-1", efs.Error), without, ours}, vpc: "vpc-1",
		},
		"without a known VPC any will do": {
			state: efs.Available, targets: []efs.MountTarget{ours},
		},
		"creating is too early": {
			state: efs.Creating, targets: []efs.MountTarget{ours},
			reason: "the file system is creating, not available",
		},
		"an unknown state is not trusted": {
			targets: []efs.MountTarget{ours},
			reason:  "the file system is in no known state, not available",
		},
		"a replication destination is read-only": {
			state: efs.Available, replica: true, targets: []efs.MountTarget{ours},
			reason: "the file system is the destination of a replication, so it is read-only",
		},
		"no mount target": {
			state:  efs.Available,
			reason: "the file system has no mount target",
		},
		"mount targets elsewhere": {
			state: efs.Available, targets: []efs.MountTarget{ours}, vpc: "vpc-2",
			reason: "the file system has no mount target in vpc-2, only in vpc-1",
		},
		"mount targets that are not available": {
			state: efs.Available, targets: []efs.MountTarget{mountTarget("vpc-1", efs.Creating)},
			reason: "the file system has no mount target that is available and has an address",
		},
		"an address of IPv6 is enough": {
			state: efs.Available, targets: []efs.MountTarget{without, ipv6}, vpc: "vpc-1",
		},
		"an address of IPv6 elsewhere": {
			state: efs.Available, targets: []efs.MountTarget{ipv6}, vpc: "vpc-2",
			reason: "the file system has no mount target in vpc-2, only in vpc-1",
		},
		"mount targets without an address": {
			state: efs.Available, targets: []efs.MountTarget{without},
			reason: "the file system has no mount target that is available and has an address",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fs := efs.FileSystem{ID: "fs-1", State: tt.state, ReplicationDestination: tt.replica, MountTargets: tt.targets}
			reason, ok := efs.Usable(fs, tt.vpc)
			if reason != tt.reason || ok != (tt.reason == "") {
				t.Errorf("got %q, %v; want %q", reason, ok, tt.reason)
			}
		})
	}
}

func TestConclusive(t *testing.T) {
	some := []efs.FileSystem{{ID: "fs-1"}}
	tests := map[string]struct {
		listing efs.Listing
		want    bool
	}{
		"a complete listing":        {efs.Listing{FileSystems: some, Complete: true}, true},
		"a partial one":             {efs.Listing{FileSystems: some}, false},
		"an empty one":              {efs.Listing{Complete: true}, false},
		"one with something unread": {efs.Listing{FileSystems: some, Complete: true, Failed: map[string]error{"fs-1": nil}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.listing.Conclusive(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
