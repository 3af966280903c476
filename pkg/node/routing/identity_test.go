package routing_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// withAccessPoint is fs-1 with an access point.
func withAccessPoint(change func(*routing.Input)) routing.Input {
	return input(func(in *routing.Input) {
		target := threeZones()
		target.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20500}}
		in.Table.Targets["fs-1"] = target
		if change != nil {
			change(in)
		}
	})
}

const accessPointTunnel = "fs-1.fsap-1"

func accessPointIdentity() clientcert.Identity {
	return clientcert.Identity{FileSystem: "fs-1", AccessPoint: "fsap-1"}
}

func TestAccessPointNeedsCertificate(t *testing.T) {
	good := routing.Certificate{Identity: accessPointIdentity(), File: "/c.pem", Key: "/client.key", Sum: strings.Repeat("a", 64)}
	other := good
	other.Identity.IAM = true
	failed := routing.Certificate{Identity: accessPointIdentity(), File: "/c.pem", Key: "/client.key", Problem: "disk full"}
	notRenewed := good
	notRenewed.Problem = "disk full"
	tests := map[string]struct {
		held                        map[string]routing.Certificate
		tunnels, unusable, awaiting int
	}{
		"no certificate yet":           {nil, 1, 0, 1},
		"one with an earlier identity": {map[string]routing.Certificate{accessPointTunnel: other}, 2, 0, 0},
		"one for another tunnel":       {map[string]routing.Certificate{"fs-1": good}, 1, 0, 1},
		"one that cannot be made":      {map[string]routing.Certificate{accessPointTunnel: failed}, 1, 1, 0},
		"one with its identity":        {map[string]routing.Certificate{accessPointTunnel: good}, 2, 0, 0},
		"one that cannot be renewed":   {map[string]routing.Certificate{accessPointTunnel: notRenewed}, 2, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := routing.NewPlan(withAccessPoint(func(in *routing.Input) {
				in.Certificates, in.Files = tt.held, []string{"fs-1", accessPointTunnel}
			}))
			if len(plan.Tunnels) != tt.tunnels || len(plan.Unusable) != tt.unusable || len(plan.AwaitingCertificate) != tt.awaiting {
				t.Errorf("got %d tunnels, unusable %v, awaiting a certificate %v", len(plan.Tunnels), plan.Unusable, plan.AwaitingCertificate)
			}
			if len(plan.Remove) > 0 || len(plan.States) != 2 {
				t.Errorf("got remove %v, states %v, want no removal and both states", plan.Remove, plan.States)
			}
			for _, u := range plan.Unusable {
				if u.Name != accessPointTunnel || u.Port != 20500 || u.Reason != routing.ClientCertificate || !strings.Contains(u.Message, "disk full") {
					t.Errorf("got %+v", u)
				}
			}
		})
	}
}

func TestSpecificationChangesWithTheCertificate(t *testing.T) {
	specWith := func(sum string) string {
		plan := routing.NewPlan(withAccessPoint(func(in *routing.Input) {
			in.Certificates = map[string]routing.Certificate{accessPointTunnel: {Identity: accessPointIdentity(), File: "/c.pem", Key: "/client.key", Sum: sum}}
		}))
		if len(plan.Tunnels) != 2 || plan.Tunnels[1].Name != accessPointTunnel {
			t.Fatalf("got %+v", plan)
		}
		if strings.Contains(string(plan.Tunnels[0].Spec), "cert") {
			t.Errorf("the file system's own tunnel has a certificate:\n%s", plan.Tunnels[0].Spec)
		}
		return string(plan.Tunnels[1].Spec)
	}
	before, after := specWith(strings.Repeat("a", 64)), specWith(strings.Repeat("b", 64))
	if !strings.Contains(before, `"cert":"/c.pem","key":"/client.key"`) {
		t.Errorf("got\n%s", before)
	}
	if before == after {
		t.Error("the specification is the same with another certificate, so the supervisor would not reload it")
	}
}

func TestIdentities(t *testing.T) {
	tests := map[string]struct {
		change func(*routing.Input, *ports.Target)
		want   map[string]clientcert.Identity
	}{
		"an access point": {nil, map[string]clientcert.Identity{accessPointTunnel: accessPointIdentity()}},
		"a server that wants the certificate of the agents": {
			func(_ *routing.Input, t *ports.Target) { t.ClientCertificate, t.AccessPoints, t.IAM = true, nil, true },
			map[string]clientcert.Identity{"fs-1": {FileSystem: "fs-1", Installed: true}},
		},
		"IAM for the file system only": {
			func(_ *routing.Input, t *ports.Target) { t.IAM = true },
			map[string]clientcert.Identity{
				"fs-1": {FileSystem: "fs-1", IAM: true, Region: "us-east-1"}, accessPointTunnel: accessPointIdentity(),
			},
		},
		"IAM for the access point only": {
			func(_ *routing.Input, t *ports.Target) {
				t.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20500, IAM: true}}
			},
			map[string]clientcert.Identity{accessPointTunnel: {FileSystem: "fs-1", AccessPoint: "fsap-1", IAM: true, Region: "us-east-1"}},
		},
		"the region of the DNS name over the node's": {
			func(in *routing.Input, t *ports.Target) {
				in.Settings.Region, t.AccessPoints, t.IAM = "eu-west-1", nil, true
				t.DNSName = "us-east-1a.fs-1.efs.us-east-1.amazonaws.com"
			},
			map[string]clientcert.Identity{"fs-1": {FileSystem: "fs-1", IAM: true, Region: "us-east-1"}},
		},
		"a DNS name that is not of EFS": {
			func(in *routing.Input, t *ports.Target) {
				in.Settings.Region, t.AccessPoints, t.IAM, t.DNSName = "eu-west-1", nil, true, "efs.example.com"
			},
			map[string]clientcert.Identity{"fs-1": {FileSystem: "fs-1", IAM: true, Region: "eu-west-1"}},
		},
		"no region": {
			func(_ *routing.Input, t *ports.Target) { t.AccessPoints, t.IAM, t.DNSName = nil, true, "fs-1.efs" },
			map[string]clientcert.Identity{"fs-1": {FileSystem: "fs-1", IAM: true}},
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
			if diff := cmp.Diff(tt.want, routing.Identities(in)); diff != "" {
				t.Errorf("identities (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTunnelContinuesWithoutIAMUntilThereIsACertificate(t *testing.T) {
	const problem = "there are no credentials"
	anonymous := routing.Certificate{Identity: accessPointIdentity(), File: "/c.pem", Key: "/client.key", Sum: strings.Repeat("a", 64)}
	before := withAccessPoint(func(in *routing.Input) {
		in.Certificates = map[string]routing.Certificate{accessPointTunnel: anonymous}
	})
	first := routing.NewPlan(before)
	if len(first.Tunnels) != 2 {
		t.Fatalf("got %+v", first)
	}
	planWithIAM := func(change func(*routing.Input)) routing.Plan {
		return routing.NewPlan(withAccessPoint(func(in *routing.Input) {
			target := in.Table.Targets["fs-1"]
			target.IAM, target.AccessPoints = true, map[string]ports.AccessPoint{"fsap-1": {Port: 20500, IAM: true}}
			target.AddressByZone = map[string]netip.Addr{"us-east-1b": address("10.0.9.9")}
			target.AddressBySubnet = nil
			in.Table.Targets["fs-1"] = target
			in.States, in.Files = first.States, []string{"fs-1", accessPointTunnel}
			notReplaced := anonymous
			notReplaced.Problem = problem
			in.Certificates = map[string]routing.Certificate{
				accessPointTunnel: notReplaced, "fs-1": {Identity: clientcert.Identity{FileSystem: "fs-1", IAM: true, Region: "us-east-1"}, File: "/fs.pem", Key: "/client.key", Problem: problem},
			}
			change(in)
		}))
	}
	plan := planWithIAM(func(*routing.Input) {})
	if len(plan.Tunnels) != 2 || len(plan.Unusable)+len(plan.AwaitingCertificate) > 0 {
		t.Fatalf("got tunnels %v, unusable %v, awaiting a certificate %v", plan.Tunnels, plan.Unusable, plan.AwaitingCertificate)
	}
	for i, tunnel := range plan.Tunnels {
		content := string(tunnel.Spec)
		if !strings.Contains(content, `"connect":["10.0.9.9:2049"`) || strings.Contains(content, `"cert":`) != (i == 1) || strings.Contains(content, "/fs.pem") {
			t.Errorf("got\n%s\nwant the new mount target and the certificate of before", content)
		}
		if !tunnel.Identity.IAM || tunnel.Certificate.Problem != problem || tunnel.Certificate.Identity.IAM {
			t.Errorf("got identity %+v, certificate %+v, want IAM and the problem", tunnel.Identity, tunnel.Certificate)
		}
	}
	again := planWithIAM(func(in *routing.Input) { in.States = plan.States })
	if diff := cmp.Diff(plan.States, again.States, cmpopts.EquateComparable(netip.Addr{})); diff != "" || len(again.Tunnels) != 2 {
		t.Errorf("planned again (-want +got), %d tunnels:\n%s", len(again.Tunnels), diff)
	}
	signed := planWithIAM(func(in *routing.Input) {
		held := in.Certificates["fs-1"]
		held.Sum, held.Problem = strings.Repeat("b", 64), ""
		in.Certificates["fs-1"] = held
	})
	if !strings.Contains(string(signed.Tunnels[0].Spec), `"cert":"/fs.pem"`) {
		t.Errorf("the specification lacks the certificate:\n%s", signed.Tunnels[0].Spec)
	}
	// A tunnel that had IAM does not go back to no IAM.
	signed = planWithIAM(func(in *routing.Input) { in.States, in.Certificates = signed.States, nil })
	if len(signed.Tunnels) != 0 || len(signed.AwaitingCertificate) != 2 {
		t.Errorf("after a restart, got tunnels %v, awaiting a certificate %v", signed.Tunnels, signed.AwaitingCertificate)
	}
	fresh := planWithIAM(func(in *routing.Input) {
		in.States, in.Files, in.Certificates[accessPointTunnel] = nil, nil, routing.Certificate{}
	})
	if len(fresh.Tunnels) != 0 || len(fresh.Unusable) != 1 || len(fresh.AwaitingCertificate) != 1 {
		t.Errorf("on a new node, got tunnels %v, unusable %v, awaiting a certificate %v", fresh.Tunnels, fresh.Unusable, fresh.AwaitingCertificate)
	}
}
