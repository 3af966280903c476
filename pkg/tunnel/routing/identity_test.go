package routing_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		"one of what it was before":     {map[string]routing.Certificate{point: other}, 1, 0, 1},
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
		if strings.Contains(string(plan.Tunnels[0].Content), "cert") {
			t.Errorf("the file system itself shows one:\n%s", plan.Tunnels[0].Content)
		}
		return string(plan.Tunnels[1].Content)
	}
	before, after := file(strings.Repeat("a", 64)), file(strings.Repeat("b", 64))
	if !strings.Contains(before, "\ncert = /c.pem\nkey = /client.key\n") {
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
		"no region, no signature": {
			func(_ *routing.Input, t *ports.Target) { t.AccessPoints, t.IAM, t.DNSName = nil, true, "fs-1.efs" },
			map[string]routing.Identity{},
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
