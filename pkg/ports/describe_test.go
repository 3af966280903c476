package ports_test

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// TestIdentity: only tunnels in demand show a client certificate.
func TestIdentity(t *testing.T) {
	fileSystem, point := ports.Key{FileSystem: "fs-1"}, ports.Key{FileSystem: "fs-1", AccessPoint: "fsap-1"}
	tests := map[string]struct {
		before                bool // both tunnels do
		demand                ports.Demand
		pinned                bool // the access point is, with an identity
		wantTarget, wantPoint bool
	}{
		"not demanded":                      {demand: ports.Demand{Known: true, AccessPoints: []ports.Key{point}}},
		"an access point's volume asks":     {demand: ports.Demand{Known: true, IAM: []ports.Key{point}}, wantPoint: true},
		"a file system's volume asks":       {demand: ports.Demand{Known: true, IAM: []ports.Key{fileSystem}}, wantTarget: true},
		"no longer demanded":                {before: true, demand: ports.Demand{Known: true}},
		"who asks is not known yet":         {before: true, wantTarget: true, wantPoint: true},
		"the administrator asks for it all": {pinned: true, demand: ports.Demand{Known: true}, wantPoint: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.demand.AccessPoints = []ports.Key{point}
			in := ports.Input{
				Table: &ports.Table{Targets: map[string]ports.Target{"fs-1": {
					Name: "fs-1", Port: 20490, IAM: tt.before,
					AccessPoints: map[string]ports.AccessPoint{"fsap-1": {Port: 20491, IAM: tt.before}},
				}}},
				Demand: tt.demand, Range: fourPorts, Now: noon,
			}
			if tt.pinned {
				in.Pinned = ports.Table{Targets: map[string]ports.Target{"fs-1": {AccessPoints: map[string]ports.AccessPoint{"fsap-1": {IAM: true}}}}}
			}
			out := ports.Assign(in)
			target := out.Table.Targets["fs-1"]
			if got := target.AccessPoints["fsap-1"]; target.IAM != tt.wantTarget || got.IAM != tt.wantPoint || got.Port != 20491 {
				t.Errorf("got %v for the file system and %+v for the access point", target.IAM, got)
			}
			if again := ports.Assign(apply(in, out)); again.Changed {
				t.Error("done again, it changes the table again")
			}
			if in.Table.Targets["fs-1"].AccessPoints["fsap-1"].IAM != tt.before {
				t.Error("the input was changed")
			}
		})
	}
}
