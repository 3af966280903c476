package routing_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

// withAccessPoint is fs-1 with an access point.
func withAccessPoint(change func(*routing.Input)) routing.Input {
	return input(func(in *routing.Input) {
		target := shared()
		target.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20500}}
		in.Table.Targets["fs-1"] = target
		in.Settings.KeyFile = "/client.key"
		if change != nil {
			change(in)
		}
	})
}

// point is the access point's.
const point = "fs-1.fsap-1"

func pointIdentity() routing.Identity {
	return routing.Identity{FileSystem: "fs-1", AccessPoint: "fsap-1"}
}

func TestAccessPointsAreNotServedWithoutCertificate(t *testing.T) {
	good := routing.Certificate{Identity: pointIdentity(), File: "/c.pem", Sum: strings.Repeat("a", 64)}
	other := good
	other.Identity.IAM = true
	failed := routing.Certificate{Identity: pointIdentity(), File: "/c.pem", Problem: "disk full"}
	aging := good
	aging.Problem = "disk full"
	tests := map[string]struct {
		held                       map[string]routing.Certificate
		tunnels, troubles, waiting int
	}{
		"none yet":                      {nil, 1, 0, 1},
		"one of what it was before":     {map[string]routing.Certificate{point: other}, 2, 0, 0},
		"one of another tunnel":         {map[string]routing.Certificate{"fs-1": good}, 1, 0, 1},
		"one that cannot be made":       {map[string]routing.Certificate{point: failed}, 1, 1, 0},
		"one":                           {map[string]routing.Certificate{point: good}, 2, 0, 0},
		"one that could not be renewed": {map[string]routing.Certificate{point: aging}, 2, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := routing.Make(withAccessPoint(func(in *routing.Input) {
				in.Certificates, in.Files = tt.held, []string{"fs-1", point}
			}))
			if len(plan.Tunnels) != tt.tunnels || len(plan.Troubles) != tt.troubles || len(plan.Waiting) != tt.waiting {
				t.Errorf("got %d tunnels, troubles %v, waiting %v", len(plan.Tunnels), plan.Troubles, plan.Waiting)
			}
			if len(plan.Remove) > 0 || len(plan.Memories) != 2 {
				t.Errorf("what it had is touched: %v, %v", plan.Remove, plan.Memories)
			}
			for _, trouble := range plan.Troubles {
				if trouble.Name != point || trouble.Port != 20500 || trouble.Reason != routing.ClientCertificate || !strings.Contains(trouble.Message, "disk full") {
					t.Errorf("got %+v", trouble)
				}
			}
		})
	}
}

func TestCertificateIsInTheFile(t *testing.T) {
	file := func(sum string) string {
		plan := routing.Make(withAccessPoint(func(in *routing.Input) {
			in.Certificates = map[string]routing.Certificate{point: {Identity: pointIdentity(), File: "/c.pem", Sum: sum}}
		}))
		if len(plan.Tunnels) != 2 || plan.Tunnels[1].Name != point {
			t.Fatalf("got %+v", plan)
		}
		if strings.Contains(string(plan.Tunnels[0].Spec), "cert") {
			t.Errorf("the file system itself shows one:\n%s", plan.Tunnels[0].Spec)
		}
		return string(plan.Tunnels[1].Spec)
	}
	before, after := file(strings.Repeat("a", 64)), file(strings.Repeat("b", 64))
	if !strings.Contains(before, `"cert":"/c.pem","key":"/client.key"`) {
		t.Errorf("got\n%s", before)
	}
	if before == after {
		t.Error("nothing in the file says that the certificate is another one, so nobody reloads it")
	}
}

func TestIdentities(t *testing.T) {
	tests := map[string]struct {
		change func(*routing.Input, *ports.Target)
		want   map[string]routing.Identity
	}{
		"an access point": {nil, map[string]routing.Identity{point: pointIdentity()}},
		"IAM for the file system only": {
			func(_ *routing.Input, t *ports.Target) { t.IAM = true },
			map[string]routing.Identity{
				"fs-1": {FileSystem: "fs-1", IAM: true, Region: "us-east-1"}, point: pointIdentity(),
			},
		},
		"IAM for the access point only": {
			func(_ *routing.Input, t *ports.Target) {
				t.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20500, IAM: true}}
			},
			map[string]routing.Identity{point: {FileSystem: "fs-1", AccessPoint: "fsap-1", IAM: true, Region: "us-east-1"}},
		},
		"the name's region wins": {
			func(in *routing.Input, t *ports.Target) {
				in.Settings.Region, t.AccessPoints, t.IAM = "eu-west-1", nil, true
				t.DNSName = "us-east-1a.fs-1.efs.us-east-1.amazonaws.com"
			},
			map[string]routing.Identity{"fs-1": {FileSystem: "fs-1", IAM: true, Region: "us-east-1"}},
		},
		"a name of another kind": {
			func(in *routing.Input, t *ports.Target) {
				in.Settings.Region, t.AccessPoints, t.IAM, t.DNSName = "eu-west-1", nil, true, "efs.example.com"
			},
			map[string]routing.Identity{"fs-1": {FileSystem: "fs-1", IAM: true, Region: "eu-west-1"}},
		},
		"no region": {
			func(_ *routing.Input, t *ports.Target) { t.AccessPoints, t.IAM, t.DNSName = nil, true, "fs-1.efs" },
			map[string]routing.Identity{"fs-1": {FileSystem: "fs-1", IAM: true}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := withAccessPoint(nil)
			if tt.change != nil {
				target := in.Table.Targets["fs-1"]
				tt.change(&in, &target)
				in.Table.Targets["fs-1"] = target
			}
			if diff := cmp.Diff(tt.want, routing.Identities(in.Table, in.Settings)); diff != "" {
				t.Errorf("identities (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever has the nodes prove who they are asks for more than the others of the tunnel did.
func TestIAMThatCannotBeShownYet(t *testing.T) {
	const problem = "there are no credentials"
	anonymous := routing.Certificate{Identity: pointIdentity(), File: "/c.pem", Sum: strings.Repeat("a", 64)}
	before := withAccessPoint(func(in *routing.Input) { in.Certificates = map[string]routing.Certificate{point: anonymous} })
	first := routing.Make(before)
	if len(first.Tunnels) != 2 {
		t.Fatalf("got %+v", first)
	}
	turned := func(change func(*routing.Input)) routing.Plan {
		return routing.Make(withAccessPoint(func(in *routing.Input) {
			target := in.Table.Targets["fs-1"]
			target.IAM, target.AccessPoints = true, map[string]ports.AccessPoint{"fsap-1": {Port: 20500, IAM: true}}
			target.AddressByZone = map[string]netip.Addr{"us-east-1b": address("10.0.9.9")}
			target.AddressBySubnet = nil
			in.Table.Targets["fs-1"] = target
			in.Memories, in.Files = first.Memories, []string{"fs-1", point}
			kept := anonymous
			kept.Problem = problem
			in.Certificates = map[string]routing.Certificate{
				point: kept, "fs-1": {Identity: routing.Identity{FileSystem: "fs-1", IAM: true, Region: "us-east-1"}, File: "/fs.pem", Problem: problem},
			}
			change(in)
		}))
	}
	plan := turned(func(*routing.Input) {})
	if len(plan.Tunnels) != 2 || len(plan.Troubles)+len(plan.Waiting) > 0 {
		t.Fatalf("got tunnels %v, troubles %v, waiting %v", plan.Tunnels, plan.Troubles, plan.Waiting)
	}
	for i, tunnel := range plan.Tunnels {
		content := string(tunnel.Spec)
		if !strings.Contains(content, `"connect":["10.0.9.9:2049"`) || strings.Contains(content, `"cert":`) != (i == 1) || strings.Contains(content, "/fs.pem") {
			t.Errorf("got\n%s\nwant the new mount target, and what was shown before", content)
		}
		if !tunnel.Identity.IAM || tunnel.Certificate.Problem != problem || tunnel.Certificate.Identity.IAM {
			t.Errorf("it does not tell: %+v, %+v", tunnel.Identity, tunnel.Certificate)
		}
	}
	again := turned(func(in *routing.Input) { in.Memories = plan.Memories })
	if diff := cmp.Diff(plan.Memories, again.Memories, cmpopts.EquateComparable(netip.Addr{})); diff != "" || len(again.Tunnels) != 2 {
		t.Errorf("planned again (-want +got), %d tunnels:\n%s", len(again.Tunnels), diff)
	}
	signed := turned(func(in *routing.Input) {
		held := in.Certificates["fs-1"]
		held.Sum, held.Problem = strings.Repeat("b", 64), ""
		in.Certificates["fs-1"] = held
	})
	if !strings.Contains(string(signed.Tunnels[0].Spec), `"cert":"/fs.pem"`) {
		t.Errorf("the certificate is there, and not shown:\n%s", signed.Tunnels[0].Spec)
	}
	// It must not show less than it did.
	signed = turned(func(in *routing.Input) { in.Memories, in.Certificates = signed.Memories, nil })
	if len(signed.Tunnels) != 0 || len(signed.Waiting) != 2 {
		t.Errorf("after a restart, got tunnels %v, waiting %v", signed.Tunnels, signed.Waiting)
	}
	fresh := turned(func(in *routing.Input) {
		in.Memories, in.Files, in.Certificates[point] = nil, nil, routing.Certificate{}
	})
	if len(fresh.Tunnels) != 0 || len(fresh.Troubles) != 1 || len(fresh.Waiting) != 1 {
		t.Errorf("on a new node, got tunnels %v, troubles %v, waiting %v", fresh.Tunnels, fresh.Troubles, fresh.Waiting)
	}
}
