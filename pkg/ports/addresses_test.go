package ports_test

import (
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestAddressOfAnotherFileSystemIsReported(t *testing.T) {
	at := func(dnsName, address string) ports.Target {
		return ports.Target{Port: 20491, DNSName: dnsName, AddressByZone: addresses("us-east-1a", address)}
	}
	deleting, elsewhere := usable("fs-2"), usable("fs-2")
	deleting.MountTargets[0].State = efs.Deleting
	elsewhere.MountTargets[0].VPCID = "vpc-2"
	owned := ports.Volume{Name: "v", On: ports.Key{FileSystem: "fs-1"}, Port: 20491}
	tests := map[string]struct {
		target ports.Target // fs-1, which no listing has
		other  efs.FileSystem
		pin    map[string]ports.Target
		want   bool
	}{
		"deleted, and one that the filter excludes has its address": {target: at("a", "10.0.0.4"), other: usable("fs-2"), want: true},
		"the other one's mount target is deleted, too":              {target: at("a", "10.0.0.4"), other: deleting},
		"the other one is in another VPC":                           {target: at("a", "10.0.0.4"), other: elsewhere},
		"an address of its own":                                     {target: at("a", "10.0.0.5"), other: usable("fs-2")},
		"mistyped in a pin":                                         {target: at("a", "10.0.0.5"), other: usable("fs-2"), pin: map[string]ports.Target{"fs-1": at("a", "10.0.0.4")}, want: true},
		"a pin has it with the name of the other one, its copy":     {target: at("a", "10.0.0.5"), other: usable("fs-2"), pin: map[string]ports.Target{"fs-1": at("fs-2.efs.test", "10.0.0.4")}},
		"two pins have it":                                          {target: at("a", "10.0.0.5"), other: usable("fs-2"), pin: map[string]ports.Target{"fs-1": at("a", "10.9.0.1"), "fs-0": at("b", "10.9.0.1")}, want: true},
		"two pins have it for one server, which has two ids by it":  {target: at("a", "10.0.0.5"), other: usable("fs-2"), pin: map[string]ports.Target{"fs-1": at("a", "10.9.0.1"), "fs-0": at("a", "10.9.0.1")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := ports.Input{
				Table:   &ports.Table{Targets: map[string]ports.Target{"fs-1": tt.target}, Source: home},
				Listing: efs.Listing{FileSystems: []efs.FileSystem{tt.other}, Complete: true, ReadAt: noon, Source: home},
				Pinned:  ports.Table{Targets: tt.pin}, Volumes: []ports.Volume{owned}, VPCID: "vpc-1", Range: fourPorts, Now: noon,
				Filter: efs.Filter{IDs: []string{"fs-0", "fs-1"}},
			}
			out := ports.Assign(in)
			found := slices.ContainsFunc(out.Conditions, func(e ports.Event) bool {
				return e.Reason == wellknown.EventAddressConflict && e.FileSystem == "fs-1" && strings.Contains(e.Message, "is also that of")
			})
			if found != tt.want {
				t.Errorf("reported: %v, want %v; conditions %v", found, tt.want, out.Conditions)
			}
			if got := out.Table.Targets["fs-1"]; got.Port != 20491 || len(got.AddressByZone) != 1 {
				t.Errorf("got %+v, want its port and its address kept", got)
			}
			if again := ports.Assign(apply(in, out)); len(again.Events) > 0 {
				t.Errorf("got %v, want nothing that has happened", again.Events)
			}
		})
	}
}
