package agent

import (
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

func TestReadiness(t *testing.T) {
	good := tunnelView{name: "fs-1", inForce: true, up: true, status: supervise.Tunnel{Listening: true}}
	sick := good
	sick.up = false
	// Probes of its address are answered, but by the old pod.
	crowdedOut := tunnelView{name: "fs-1", up: true, status: supervise.Tunnel{
		Process: &supervise.Problem{Reason: supervise.ReasonPortTaken},
	}}
	shut := crowdedOut
	shut.status.Process = nil
	with := func(change func(*view)) view {
		v := view{hasTable: true, supervised: true, planned: true, tunnels: []tunnelView{good}}
		change(&v)
		return v
	}
	tests := map[string]struct {
		view view
		// What it says at first, later without having been ready, and when it was ready before;
		// "" for ready.
		first, later, again string
	}{
		"all is well":             {with(func(*view) {}), "", "", ""},
		"no tunnels to serve":     {with(func(v *view) { v.tunnels = nil }), "", "", ""},
		"no table":                {with(func(v *view) { v.hasTable = false }), "no table", "no table", "no table"},
		"no supervisor":           {with(func(v *view) { v.supervised = false }), "supervisor", "supervisor", "supervisor"},
		"no plan":                 {with(func(v *view) { v.planned, v.tunnels = false, nil }), "no plan", "no plan", "no plan"},
		"sick":                    {with(func(v *view) { v.tunnels[0] = sick }), "not healthy yet: fs-1", "", ""},
		"no certificate":          {with(func(v *view) { v.waiting = []string{"fs-2"} }), "certificate yet: fs-2", "", ""},
		"never read":              {with(func(v *view) { v.unknown = []string{`"fs-2"`} }), `older pod can know them: "fs-2"`, `"fs-2"`, ""},
		"strangers have the port": {with(func(v *view) { v.tunnels[0] = crowdedOut }), "not healthy yet: fs-1", "", ""},
		"the port is not open":    {with(func(v *view) { v.tunnels[0] = shut }), "not listening: fs-1", "not listening: fs-1", "not listening: fs-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, each := range []struct {
				when, want string
				err        error
			}{
				{"at first", tt.first, tt.view.begun(true)},
				{"later", tt.later, tt.view.begun(false)},
				{"ready before", tt.again, tt.view.ready()},
			} {
				if (each.err == nil) != (each.want == "") || each.err != nil && !strings.Contains(each.err.Error(), each.want) {
					t.Errorf("%s: got %v, want %q", each.when, each.err, each.want)
				}
			}
		})
	}
}
