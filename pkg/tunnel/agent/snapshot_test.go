package agent

import (
	"errors"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// What only the server answered says nothing about a tunnel that does not listen.
func TestUp(t *testing.T) {
	silent := errors.New("silent")
	tests := map[string]struct {
		result    *probe.Result
		listening bool
		want      bool
	}{
		"not probed":                             {nil, true, false},
		"answered":                               {&probe.Result{}, true, true},
		"answered, no supervisor runs":           {&probe.Result{}, false, true},
		"an old connection is answered":          {&probe.Result{Err: silent, Established: true}, true, true},
		"not answered":                           {&probe.Result{Err: silent}, true, false},
		"its server answers":                     {&probe.Result{ServerOnly: true}, true, true},
		"its server answers, it does not listen": {&probe.Result{ServerOnly: true}, false, false},
		"its server does not answer":             {&probe.Result{ServerOnly: true, Err: silent}, true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := &Agent{}
			a.status.Tunnels = map[string]supervise.Tunnel{"fs-1": {Listening: tt.listening}}
			state := &tunnelState{result: tt.result}
			state.Name = "fs-1"
			if got := a.snapshotOf(state).up; got != tt.want {
				t.Errorf("up is %v", got)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	good := tunnelSnapshot{name: "fs-1", inForce: true, up: true, status: supervise.Tunnel{Listening: true}}
	unhealthy := good
	unhealthy.up = false
	// Probes of its address are answered by the old pod.
	portTaken := tunnelSnapshot{name: "fs-1", up: true, status: supervise.Tunnel{
		Process: &supervise.Problem{Reason: supervise.ReasonPortTaken},
	}}
	notListening := portTaken
	notListening.status.Process = nil
	with := func(change func(*snapshot)) snapshot {
		v := snapshot{hasTable: true, supervised: true, planned: true, tunnels: []tunnelSnapshot{good}}
		change(&v)
		return v
	}
	tests := map[string]struct {
		snapshot snapshot
		// The error during HealthWait, later without having been ready, and after having been ready;
		// "" for ready.
		first, later, again string
	}{
		"all tunnels healthy":          {with(func(*snapshot) {}), "", "", ""},
		"no tunnels":                   {with(func(v *snapshot) { v.tunnels = nil }), "", "", ""},
		"no table":                     {with(func(v *snapshot) { v.hasTable = false }), "no table", "no table", "no table"},
		"no supervisor":                {with(func(v *snapshot) { v.supervised = false }), "supervisor", "supervisor", "supervisor"},
		"no plan":                      {with(func(v *snapshot) { v.planned, v.tunnels = false, nil }), "no plan", "no plan", "no plan"},
		"unhealthy":                    {with(func(v *snapshot) { v.tunnels[0] = unhealthy }), "not healthy yet: fs-1", "", ""},
		"no certificate":               {with(func(v *snapshot) { v.waiting = []string{"fs-2"} }), "certificate yet: fs-2", "", ""},
		"a target never decoded":       {with(func(v *snapshot) { v.unknown = []string{`"fs-2"`} }), `older pod can know them: "fs-2"`, `"fs-2"`, ""},
		"another process has the port": {with(func(v *snapshot) { v.tunnels[0] = portTaken }), "not healthy yet: fs-1", "", ""},
		"not listening":                {with(func(v *snapshot) { v.tunnels[0] = notListening }), "not listening: fs-1", "not listening: fs-1", "not listening: fs-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, each := range []struct {
				when, want string
				err        error
			}{
				{"at first", tt.first, tt.snapshot.readyAtFirst(true)},
				{"later", tt.later, tt.snapshot.readyAtFirst(false)},
				{"ready before", tt.again, tt.snapshot.ready()},
			} {
				if (each.err == nil) != (each.want == "") || each.err != nil && !strings.Contains(each.err.Error(), each.want) {
					t.Errorf("%s: got %v, want %q", each.when, each.err, each.want)
				}
			}
		})
	}
}
