package ports_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func pins(portOf map[string]int) ports.Table { return *given(portOf) }

func TestPinnedPorts(t *testing.T) {
	runAssignments(t, map[string]assignmentTest{
		"are granted, also outside the range and without discovery": {
			in:   ports.Input{Pinned: pins(kept{"nas-1": 31000, "nas-2": 0})},
			want: outcome{Ports: kept{"nas-1": 31000, "nas-2": 20490}, Events: []string{"Found nas-1", "Found nas-2"}},
		},
		"are granted before others choose": {
			in:   ports.Input{Pinned: pins(kept{"nas-1": 20490}), Listing: listing("fs-1")},
			want: outcome{Ports: kept{"fs-1": 20491, "nas-1": 20490}, Events: []string{"Found fs-1", "Found nas-1"}},
		},
		"are granted where only a volume of the administrator's is": {
			in: ports.Input{
				Pinned:  pins(kept{"nas-1": 20500}),
				Volumes: []ports.Volume{volume("static", "", 20500), volume("ours", "nas-1", 20500)},
			},
			want: outcome{Ports: kept{"nas-1": 20500}, Events: []string{"Found nas-1"}},
		},
		"move nothing that was given before": {
			in:   ports.Input{Table: given(kept{"fs-1": 20490}), Pinned: pins(kept{"fs-1": 20500})},
			want: outcome{Ports: kept{"fs-1": 20490}, Events: []string{"Conflict fs-1"}},
		},
		"take nothing from others": {
			in: ports.Input{Table: given(kept{"fs-1": 20490}), Pinned: pins(kept{"nas-1": 20490})},
			want: outcome{
				Ports: kept{"fs-1": 20490, "nas-1": 20491}, Events: []string{"Conflict nas-1", "Found nas-1"},
			},
		},
		"take nothing from others' volumes": {
			in: ports.Input{
				Table: given(kept{"fs-1": 20490}), Pinned: pins(kept{"nas-1": 20500}),
				Volumes: []ports.Volume{volume("v", "fs-1", 20500)},
			},
			want: outcome{
				Ports: kept{"fs-1": 20490, "nas-1": 20491}, Retired: []int{20500},
				Corrections: []string{"v: 20500 -> 20490"}, Events: []string{"Conflict nas-1", "Found nas-1"},
			},
		},
		"are never NFS's own": {
			in:   ports.Input{Pinned: pins(kept{"nas-1": 2049})},
			want: outcome{Ports: kept{"nas-1": 20490}, Events: []string{"Conflict nas-1", "Found nas-1"}},
		},
	})
}

func TestTargetsFollow(t *testing.T) {
	old := ports.Target{
		Name: "old", Port: 20490, DNSName: "old.example.com", AvailabilityZone: "us-east-1b", NotFoundSince: noon,
		AddressBySubnet: addresses("subnet-a", "10.0.0.4", "subnet-b", "10.0.1.4"),
		AddressByZone:   addresses("us-east-1b", "10.0.1.4"),
		Unknown:         unknown(map[string]any{"owner": "x", "note": "y"}),
	}
	copyOf := func(fs efs.FileSystem) efs.FileSystem {
		fs.MountTargets = slices.Clone(fs.MountTargets)
		return fs
	}
	shared := usable("fs-1")
	shared.Name, shared.AvailabilityZone = "shared", "us-east-1a"
	second := shared.MountTargets[0]
	second.SubnetID, second.ZoneName, second.Address = "subnet-b", "us-east-1b", addresses("", "10.0.1.4")[""]
	with := func(state efs.LifeCycleState) efs.Listing {
		fs, mount := copyOf(shared), second
		mount.State = state
		fs.MountTargets = append(fs.MountTargets, mount)
		return efs.Listing{FileSystems: []efs.FileSystem{fs}, Complete: true, ReadAt: noon}
	}
	bare := shared
	bare.MountTargets = nil
	followed := ports.Target{
		Name: "shared", Port: 20490, DNSName: "fs-1.efs.test", AvailabilityZone: "us-east-1a",
		AddressBySubnet: addresses("subnet-a", "10.0.0.4"), AddressByZone: addresses("us-east-1a", "10.0.0.4"),
		Unknown: old.Unknown,
	}
	both := followed
	both.AddressBySubnet = addresses("subnet-a", "10.0.0.4", "subnet-b", "10.0.1.4")
	both.AddressByZone = addresses("us-east-1a", "10.0.0.4", "us-east-1b", "10.0.1.4")
	keptAddresses := followed
	keptAddresses.AddressBySubnet, keptAddresses.AddressByZone = old.AddressBySubnet, old.AddressByZone
	pin := ports.Target{
		Name: "pinned", DNSName: "pin.example.com", IAM: true, Unknown: unknown(map[string]any{"note": "z"}),
		AddressBySubnet: addresses("subnet-a", "192.168.0.4"),
	}
	pinnedListed := followed
	pinnedListed.Name, pinnedListed.DNSName, pinnedListed.IAM = "pinned", "pin.example.com", true
	pinnedListed.AddressBySubnet = addresses("subnet-a", "192.168.0.4")
	pinnedListed.Unknown = unknown(map[string]any{"owner": "x", "note": "z"})
	pinToCopy, pinnedToCopy := pin, pinnedListed
	pinToCopy.DNSName, pinnedToCopy.DNSName, pinnedToCopy.AddressByZone = "fs-2.efs.test", "fs-2.efs.test", nil
	dualStack, onlyIPv6 := copyOf(shared), copyOf(shared)
	dualStack.MountTargets[0].IPv6 = addresses("", "fd00::4")[""]
	onlyIPv6.MountTargets[0].Address, onlyIPv6.MountTargets[0].IPv6 = netip.Addr{}, addresses("", "fd00::4")[""]
	updating := copyOf(dualStack)
	updating.MountTargets[0].State = efs.Updating
	followedBoth := followed
	followedBoth.IPv6BySubnet, followedBoth.IPv6ByZone = addresses("subnet-a", "fd00::4"), addresses("us-east-1a", "fd00::4")
	followedIPv6 := followedBoth
	followedIPv6.AddressBySubnet, followedIPv6.AddressByZone = nil, nil
	pinIPv6 := ports.Target{IPv6ByZone: addresses("us-east-1a", "fd00::9")}
	pinnedIPv6 := followed
	pinnedIPv6.IPv6ByZone = pinIPv6.IPv6ByZone
	pinnedIPv6Alone := old
	pinnedIPv6Alone.NotFoundSince = time.Time{}
	pinnedIPv6Alone.AddressBySubnet, pinnedIPv6Alone.AddressByZone, pinnedIPv6Alone.IPv6ByZone = nil, nil, pinIPv6.IPv6ByZone
	only := func(fs efs.FileSystem) efs.Listing {
		return efs.Listing{FileSystems: []efs.FileSystem{fs}, Complete: true, ReadAt: noon}
	}
	pinnedAlone := pinnedListed
	pinnedAlone.AddressByZone, pinnedAlone.AvailabilityZone = nil, "us-east-1b"
	tests := map[string]struct {
		listing efs.Listing
		pinned  ports.Table
		want    ports.Target
	}{
		"the listing in everything but the port":         {listing: with(efs.Deleting), want: followed},
		"it with every mount target that is available":   {listing: with(efs.Available), want: both},
		"it but keep an address that is being updated":   {listing: with(efs.Updating), want: both},
		"nothing when there is no listing":               {want: old},
		"it but keep addresses when it has none":         {listing: efs.Listing{FileSystems: []efs.FileSystem{bare}}, want: keptAddresses},
		"what is pinned over what is listed":             {listing: with(efs.Deleted), pinned: ports.Table{Targets: map[string]ports.Target{"fs-1": pin}}, want: pinnedListed},
		"what is pinned alone when that is a copy":       {listing: with(efs.Deleted), pinned: ports.Table{Targets: map[string]ports.Target{"fs-1": pinToCopy}}, want: pinnedToCopy},
		"it with both addresses of a mount target":       {listing: only(dualStack), want: followedBoth},
		"it also when a new family is being updated":     {listing: only(updating), want: followedBoth},
		"it when there is only IPv6":                     {listing: only(onlyIPv6), want: followedIPv6},
		"IPv6 that is pinned beside what is listed":      {listing: only(shared), pinned: ports.Table{Targets: map[string]ports.Target{"fs-1": pinIPv6}}, want: pinnedIPv6},
		"IPv6 that is pinned alone":                      {pinned: ports.Table{Targets: map[string]ports.Target{"fs-1": pinIPv6}}, want: pinnedIPv6Alone},
		"what is pinned alone when that is all there is": {pinned: ports.Table{Targets: map[string]ports.Target{"fs-1": pin}}, want: pinnedAlone},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := ports.Input{
				Table: &ports.Table{Targets: map[string]ports.Target{"fs-1": old}}, Listing: tt.listing,
				Pinned: tt.pinned, DNSSuffix: "efs.test", Range: fourPorts, Now: noon,
			}
			before := ports.Encode(*in.Table)
			out := ports.Assign(in)
			if diff := cmp.Diff(tt.want, out.Table.Targets["fs-1"], compareTables); diff != "" {
				t.Errorf("target mismatch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(string(before), string(ports.Encode(*in.Table))); diff != "" {
				t.Errorf("the input was changed:\n%s", diff)
			}
			if out.Table.LastUpdate.IsZero() == out.Changed {
				t.Errorf("changed is %v, last update %s", out.Changed, out.Table.LastUpdate)
			}
			if again := ports.Assign(apply(in, out)); again.Changed || !again.Table.LastUpdate.Equal(out.Table.LastUpdate) {
				t.Errorf("applied and done again:\n%s", cmp.Diff(out.Table, again.Table, compareTables))
			}
		})
	}
}
