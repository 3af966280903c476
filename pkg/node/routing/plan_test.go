package routing_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

// threeZones is a target with a mount target in each of three zones.
func threeZones() ports.Target {
	return ports.Target{
		Port: 20490, DNSName: "fs-1.efs.us-east-1.amazonaws.com",
		AddressBySubnet: map[string]netip.Addr{
			"subnet-a": address("10.0.0.4"), "subnet-b": address("10.0.1.4"), "subnet-c": address("10.0.2.4"),
		},
		AddressByZone: map[string]netip.Addr{
			"us-east-1a": address("10.0.0.4"), "us-east-1b": address("10.0.1.4"), "us-east-1c": address("10.0.2.4"),
		},
	}
}

// input is a node in zone b, with one target.
func input(change func(*routing.Input)) routing.Input {
	in := routing.Input{
		Table:    ports.Table{Targets: map[string]ports.Target{"fs-1": threeZones()}},
		Location: routing.Location{Zone: "us-east-1b"},
		Settings: routing.Settings{
			CAFile: "/ca.pem", OwnCAFile: func(tunnel string) string { return "/own/" + tunnel + ".pem" },
			ServerPort: 2049, Reserved: []int{wellknown.AgentHTTPPort},
		},
		Now: now,
	}
	if change != nil {
		change(&in)
	}
	return in
}

func addresses(t routing.Tunnel) []string {
	var found []string
	for _, m := range t.MountTargets {
		found = append(found, m.Address.String())
	}
	return found
}

// dualStack is threeZones with an address of IPv6 in the first two zones.
func dualStack() ports.Target {
	target := threeZones()
	target.IPv6BySubnet = map[string]netip.Addr{"subnet-a": address("fd00::a"), "subnet-b": address("fd00::b")}
	target.IPv6ByZone = map[string]netip.Addr{"us-east-1a": address("fd00::a"), "us-east-1b": address("fd00::b")}
	return target
}

func TestAddressesOfBothFamiliesAreOrdered(t *testing.T) {
	inZone, inSubnet := routing.Location{Zone: "us-east-1b"}, routing.Location{Subnets: []string{"subnet-b"}}
	byDistance := []string{"10.0.1.4", "fd00::b", "10.0.0.4", "fd00::a", "10.0.2.4"}
	tests := map[string]struct {
		location routing.Location
		routes   routing.Routes
		change   func(*ports.Target)
		want     []string
	}{
		"by distance, then IPv4 before IPv6": {inZone, routing.Routes{}, nil, byDistance},
		"by subnet, too":                     {inSubnet, routing.Routes{}, nil, byDistance},
		"IPv6 last without a route to it":    {inZone, routing.Routes{NoIPv6: true}, nil, []string{"10.0.1.4", "10.0.0.4", "10.0.2.4", "fd00::a", "fd00::b"}},
		"IPv4 last without a route to it":    {inZone, routing.Routes{NoIPv4: true}, nil, []string{"fd00::b", "fd00::a", "10.0.0.4", "10.0.1.4", "10.0.2.4"}},
		"IPv6 by subnet only":                {inSubnet, routing.Routes{}, func(t *ports.Target) { t.AddressByZone, t.AddressBySubnet, t.IPv6ByZone = nil, nil, nil }, []string{"fd00::b", "fd00::a"}},
		"IPv6 by zone only":                  {inZone, routing.Routes{}, func(t *ports.Target) { t.AddressByZone, t.AddressBySubnet, t.IPv6BySubnet = nil, nil, nil }, []string{"fd00::b", "fd00::a"}},
		"unusable addresses of IPv6 are left out": {inZone, routing.Routes{}, func(t *ports.Target) {
			t.AddressByZone, t.AddressBySubnet, t.IPv6BySubnet = nil, nil, nil
			t.IPv6ByZone = map[string]netip.Addr{"a": address("::"), "b": address("ff02::1"), "c": address("fe80::1"), "d": address("fd00::d")}
		}, []string{"fd00::d"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			expectOrder(t, dualStack(), tt.change, tt.location, tt.routes, tt.want)
		})
	}
}

// expectOrder compares the addresses that a tunnel connects to, in their order.
func expectOrder(t *testing.T, target ports.Target, change func(*ports.Target), location routing.Location, routes routing.Routes, want []string) {
	t.Helper()
	if change != nil {
		change(&target)
	}
	plan := routing.NewPlan(input(func(in *routing.Input) {
		in.Location, in.Routes, in.Table.Targets["fs-1"] = location, routes, target
	}))
	if len(plan.Tunnels) != 1 {
		t.Fatalf("got %+v, want one tunnel", plan)
	}
	if diff := cmp.Diff(want, addresses(plan.Tunnels[0])); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A mount target without a route never counts as the nearest one to return to.
func TestNoRouteIsFarthest(t *testing.T) {
	plan := routing.NewPlan(input(func(in *routing.Input) {
		target := dualStack()
		target.IPv6BySubnet, target.IPv6ByZone = nil, map[string]netip.Addr{"us-east-1a": address("fd00::a")}
		in.Routes, in.Table.Targets["fs-1"] = routing.Routes{NoIPv4: true}, target
	}))
	if t1 := plan.Tunnels[0]; t1.HasNearer() || t1.Active.Address != address("fd00::a") || t1.MountTargets[1].Distance != routing.NoRoute {
		t.Errorf("got %+v", t1)
	}
}

func TestAddressesByFamily(t *testing.T) {
	ipv4, ipv6 := routing.Addresses(ports.Table{Targets: map[string]ports.Target{"fs-1": dualStack(), "fs-2": {}}})
	if len(ipv4) != 3 || len(ipv6) != 2 || !ipv4[0].Is4() || !ipv6[0].Is6() {
		t.Errorf("got %v and %v", ipv4, ipv6)
	}
}

func TestMountTargetsAreOrderedByDistance(t *testing.T) {
	tests := map[string]struct {
		location routing.Location
		change   func(*ports.Target)
		want     []string
	}{
		"own zone, then the others by zone": {routing.Location{Zone: "us-east-1b"}, nil, []string{"10.0.1.4", "10.0.0.4", "10.0.2.4"}},
		"own subnet before own zone":        {routing.Location{Zone: "us-east-1b", Subnets: []string{"subnet-c"}}, nil, []string{"10.0.2.4", "10.0.1.4", "10.0.0.4"}},
		"unknown location: by zone":         {routing.Location{}, nil, []string{"10.0.0.4", "10.0.1.4", "10.0.2.4"}},
		"a zone without mount target":       {routing.Location{Zone: "us-east-1f"}, nil, []string{"10.0.0.4", "10.0.1.4", "10.0.2.4"}},
		"no addresses by zone": {routing.Location{Zone: "us-east-1b"}, func(t *ports.Target) { t.AddressByZone = nil },
			[]string{"10.0.0.4", "10.0.1.4", "10.0.2.4"}},
		"a One Zone file system": {routing.Location{Zone: "us-east-1b"}, func(t *ports.Target) {
			t.AddressByZone, t.AvailabilityZone = nil, "us-east-1b"
			t.AddressBySubnet = map[string]netip.Addr{"subnet-x": address("10.0.9.4")}
		}, []string{"10.0.9.4"}},
		"unusable addresses are left out": {routing.Location{}, func(t *ports.Target) {
			t.AddressBySubnet = nil
			t.AddressByZone = map[string]netip.Addr{
				"a": address("169.254.169.254"), "b": address("0.0.0.0"), "c": address("224.0.0.1"), "d": address("10.0.0.9"),
				"e": address("::ffff:169.254.169.254"), "f": address("255.255.255.255"),
			}
		}, []string{"10.0.0.9"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			expectOrder(t, threeZones(), tt.change, tt.location, routing.Routes{}, tt.want)
		})
	}
}

func TestUnusableTargetKeepsItsTunnel(t *testing.T) {
	tests := map[string]struct {
		change func(*ports.Target)
		want   routing.Reason
	}{
		"no address":            {func(t *ports.Target) { t.AddressByZone, t.AddressBySubnet = nil, nil }, routing.NoAddress},
		"privileged port":       {func(t *ports.Target) { t.Port = 80 }, routing.BadPort},
		"NFS port":              {func(t *ports.Target) { t.Port = wellknown.NFSPort }, routing.BadPort},
		"the agent's own port":  {func(t *ports.Target) { t.Port = wellknown.AgentHTTPPort }, routing.BadPort},
		"another target's port": {func(t *ports.Target) { t.Port = 20491 }, routing.BadPort},
		"no DNS name":           {func(t *ports.Target) { t.DNSName = "" }, routing.NoHostName},
		"no region to sign for": {func(t *ports.Target) { t.IAM, t.DNSName = true, "nfs.example.com" }, routing.ClientCertificate},
		"an invalid DNS name":   {func(t *ports.Target) { t.DNSName = "10.0.0.1" }, routing.BadValue},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := routing.NewPlan(input(func(in *routing.Input) {
				bad, good := threeZones(), threeZones()
				tt.change(&bad)
				good.Port = 20491
				in.Table.Targets = map[string]ports.Target{"fs-1": good, "fs-2": bad}
				in.States = map[string]routing.State{"fs-1": {Port: 20491}, "fs-2": {Port: 20490}}
				in.Files = []string{"fs-1", "fs-2"}
			}))
			if len(plan.Unusable) != 1 || plan.Unusable[0].Name != "fs-2" || plan.Unusable[0].Reason != tt.want {
				t.Errorf("got %+v, want %s of fs-2", plan.Unusable, tt.want)
			}
			if len(plan.Tunnels) != 1 || plan.Tunnels[0].Name != "fs-1" {
				t.Errorf("got %+v, want fs-1 unaffected", plan.Tunnels)
			}
			if len(plan.Remove) != 0 || plan.States["fs-2"].Port != 20490 {
				t.Errorf("got remove %v, state %+v, want no removal and the port of before", plan.Remove, plan.States["fs-2"])
			}
		})
	}
}

func TestHostWithoutDNSNameIsInTheRegion(t *testing.T) {
	plan := routing.NewPlan(input(func(in *routing.Input) {
		target := threeZones()
		target.DNSName = ""
		in.Table.Targets["fs-1"] = target
		in.Settings.DNSSuffix = "efs.eu-west-1.amazonaws.com"
	}))
	if len(plan.Tunnels) != 1 || plan.Tunnels[0].CheckHost != "fs-1.efs.eu-west-1.amazonaws.com" {
		t.Errorf("got %+v", plan)
	}
}

func TestStandbyTunnelAcceptsOnAnotherAddress(t *testing.T) {
	first := routing.NewPlan(input(func(in *routing.Input) { in.Standby = map[string]bool{"fs-1": true} }))
	if got := first.Tunnels[0].Accept.String(); got != "127.0.0.2:20490" {
		t.Errorf("on standby: accepts at %s", got)
	}
	second := routing.NewPlan(input(func(in *routing.Input) { in.States = first.States }))
	if got := second.Tunnels[0].Accept.String(); got != "127.0.0.1:20490" {
		t.Errorf("no longer on standby: accepts at %s", got)
	}
}

func TestMissingTargetIsRemovedAfterTheGracePeriod(t *testing.T) {
	missing := func(since time.Time) map[string]routing.State {
		return map[string]routing.State{"fs-1": {Port: 20490}, "fs-9": {Port: 20499, MissingSince: since}}
	}
	tests := map[string]struct {
		change func(*routing.Input)
		want   []string
	}{
		"just missing":                           {func(in *routing.Input) { in.States = missing(time.Time{}) }, nil},
		"missing for less than the grace period": {func(in *routing.Input) { in.States = missing(now.Add(-routing.RemovalGrace + time.Second)) }, nil},
		"missing for the grace period":           {func(in *routing.Input) { in.States = missing(now.Add(-routing.RemovalGrace)) }, []string{"fs-9"}},
		"a file without state":                   {func(in *routing.Input) { in.Files = []string{"fs-8"} }, nil},
		"another target has its port": {func(in *routing.Input) {
			in.States = missing(now)
			target := threeZones()
			target.Port = 20499
			in.Table.Targets["fs-2"] = target
		}, []string{"fs-9"}},
		"listed again": {func(in *routing.Input) {
			in.States = map[string]routing.State{"fs-1": {Port: 20490, MissingSince: now.Add(-time.Hour)}}
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(tt.change)
			plan := routing.NewPlan(in)
			if diff := cmp.Diff(tt.want, plan.Remove); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			if !plan.States["fs-1"].MissingSince.IsZero() {
				t.Error("a target of the table counts as missing")
			}
		})
	}
}

func TestUsedTunnelOfAMissingTargetStays(t *testing.T) {
	in := input(func(in *routing.Input) {
		in.States = map[string]routing.State{"fs-1": {Port: 20490}, "fs-9": {Port: 20499, MissingSince: now.Add(-time.Hour)}}
		in.Used = map[string]bool{"fs-1": true, "fs-9": true}
	})
	plan := routing.NewPlan(in)
	if len(plan.Remove) != 0 || len(plan.Unusable) != 1 || plan.Unusable[0].Name != "fs-9" || plan.Unusable[0].Reason != routing.Missing {
		t.Errorf("got remove %v, unusable %+v; want fs-9 kept and reported", plan.Remove, plan.Unusable)
	}
	in.States, in.Used, in.Now = plan.States, nil, now.Add(routing.RemovalGrace-time.Minute)
	if plan := routing.NewPlan(in); len(plan.Remove) != 0 || len(plan.Unusable) != 0 {
		t.Errorf("unused for less than the grace period: got remove %v, unusable %+v", plan.Remove, plan.Unusable)
	}
	in.Now = now.Add(routing.RemovalGrace)
	if plan := routing.NewPlan(in); !slices.Equal(plan.Remove, []string{"fs-9"}) {
		t.Errorf("unused for the grace period: got remove %v", plan.Remove)
	}
}

// The manager gives the port of a file system that was deleted in AWS to another one, although mounts
// of the deleted one may be left.
func TestReassignedPortEndsAUsedTunnel(t *testing.T) {
	plan := routing.NewPlan(input(func(in *routing.Input) {
		in.States = map[string]routing.State{"fs-9": {Port: 20490}}
		in.Used = map[string]bool{"fs-9": true}
	}))
	if !slices.Equal(plan.Remove, []string{"fs-9"}) || len(plan.Unusable) != 0 || len(plan.Tunnels) != 1 || plan.Tunnels[0].Name != "fs-1" {
		t.Errorf("got %+v, want fs-9 removed and fs-1 on its port", plan)
	}
}

func TestEqualInputsGiveEqualPlans(t *testing.T) {
	in := input(func(in *routing.Input) { in.Files = []string{"fs-9"} })
	first := routing.NewPlan(in)
	in.States, in.Files = first.States, []string{"fs-1", "fs-9"}
	in.Now = now.Add(time.Second)
	second := routing.NewPlan(in)
	if diff := cmp.Diff(first, second, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("second plan differs (-first +second):\n%s", diff)
	}
}

// FuzzNewPlan: for any table, no two tunnels share a port, all listen on loopback addresses, and the
// supervisor can decode each specification.
func FuzzNewPlan(f *testing.F) {
	f.Add("fs-1", "fs-1.efs.us-east-1.amazonaws.com", "10.0.0.4", "zone", 20490, 20491)
	f.Add("fs-1\nconnect = 1.2.3.4:1", "a\nb = c", "::1%eth0", "", 2049, 2049)
	f.Add("x", "host;", "::ffff:10.0.0.1", "[x]", -1, 70000)
	f.Fuzz(func(t *testing.T, id, host, text, zone string, port, second int) {
		addr, _ := netip.ParseAddr(text) // the zero address is one more value
		in := input(func(in *routing.Input) {
			in.Table.Targets[id] = ports.Target{Port: port, DNSName: host, AddressByZone: map[string]netip.Addr{zone: addr}}
			in.Table.Targets["fs-2"] = ports.Target{Port: second, DNSName: host, AddressByZone: map[string]netip.Addr{zone: addr}}
			in.Location.Zone = zone
		})
		plan := routing.NewPlan(in)
		taken := map[netip.AddrPort]string{}
		for _, tunnel := range plan.Tunnels {
			if other, ok := taken[tunnel.Accept]; ok || !tunnel.Accept.Addr().IsLoopback() {
				t.Errorf("%s accepts at %s, which is no loopback address or that of %q", tunnel.Name, tunnel.Accept, other)
			}
			taken[tunnel.Accept] = tunnel.Name
			if _, err := tunnelspec.Decode(tunnel.Spec); err != nil {
				t.Errorf("the supervisor cannot decode %s: %v", tunnel.Spec, err)
			}
		}
		in.States, in.Files = plan.States, slices.Collect(maps.Keys(plan.States))
		again := routing.NewPlan(in)
		if fmt.Sprint(again.Tunnels, again.Unusable) != fmt.Sprint(plan.Tunnels, plan.Unusable) {
			t.Errorf("second plan differs: %v and %v", plan, again)
		}
	})
}
