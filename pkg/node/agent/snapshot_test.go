package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

// What only the server answered says nothing about a tunnel that does not listen, and an open connection of the
// agent alone nothing about clients.
func TestUp(t *testing.T) {
	silent := errors.New("silent")
	tests := map[string]struct {
		result    *probe.Result
		age       time.Duration
		listening bool
		clients   int
		want      tunnelSnapshot // up, failing and unknown
	}{
		"not probed":                             {result: nil, listening: true},
		"answered":                               {result: &probe.Result{}, listening: true, want: tunnelSnapshot{up: true}},
		"answered, no supervisor runs":           {result: &probe.Result{}, want: tunnelSnapshot{up: true}},
		"clients' open connections are answered": {result: &probe.Result{Err: silent, Established: true}, listening: true, clients: 1, want: tunnelSnapshot{up: true, failing: true}},
		"only the agent's open one is answered":  {result: &probe.Result{Err: silent, Established: true}, listening: true, want: tunnelSnapshot{failing: true}},
		"not answered":                           {result: &probe.Result{Err: silent}, listening: true, clients: 1, want: tunnelSnapshot{failing: true}},
		"its server answers":                     {result: &probe.Result{ServerOnly: true}, listening: true, want: tunnelSnapshot{up: true}},
		"its server answers, it does not listen": {result: &probe.Result{ServerOnly: true}},
		"its server does not answer":             {result: &probe.Result{ServerOnly: true, Err: silent}, listening: true, want: tunnelSnapshot{failing: true}},
		"answered three intervals ago":           {result: &probe.Result{}, age: 3 * (10*time.Second + roundTime), listening: true, want: tunnelSnapshot{up: true}},
		"answered longer ago":                    {result: &probe.Result{}, age: 3*(10*time.Second+roundTime) + 1, listening: true, want: tunnelSnapshot{unknown: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &Agent{options: Options{ProbeInterval: 10 * time.Second}, clients: sockets.ClientCounts{loopback(20490): tt.clients}}
				a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"fs-1": {Listening: tt.listening}}
				state := &tunnelState{Tunnel: routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}, Port: 20490}, result: tt.result, resultAt: time.Now().Add(-tt.age)}
				got := a.snapshotOf(state)
				if got.up != tt.want.up || got.failing != tt.want.failing || got.unknown != tt.want.unknown {
					t.Errorf("got %+v, want up %v, failing %v, unknown %v", got, tt.want.up, tt.want.failing, tt.want.unknown)
				}
			})
		})
	}
}

// TestResultsAgeWhileProbesAreLate: no series says that a tunnel is up of which nothing is known, and the age grows.
func TestResultsAgeWhileProbesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{options: Options{ProbeInterval: 10 * time.Second}, metrics: newMetrics(nil), certificates: certificates.New(certificates.Options{})}
		if a.publish(); len(ages(t, a)) != 0 {
			t.Error("there is an age without any tunnel")
		}
		a.tunnels = map[string]*tunnelState{}
		for _, name := range []string{"fs-1", "fs-2"} {
			a.tunnels[name] = &tunnelState{Tunnel: routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: name}}, resultAt: time.Now()}
			a.handleResult(probe.Result{Name: name})
		}
		<-time.After(time.Minute)
		a.handleResult(probe.Result{Name: "fs-1", Late: true})
		a.handleResult(probe.Result{Name: "fs-2"})
		a.publish()
		if got := ages(t, a); !slices.Equal(got, []float64{60}) {
			t.Errorf("got ages %v, want that of fs-1", got)
		}
		if up := values(t, a, "efs_stunnel_node_tunnel_up"); len(up) != 1 {
			t.Errorf("got %v, want only fs-2", up)
		}
	})
}

func ages(t *testing.T, a *Agent) []float64 {
	t.Helper()
	return values(t, a, "efs_stunnel_node_probe_age_seconds")
}

// values returns those of a gauge.
func values(t *testing.T, a *Agent, name string) []float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(newTunnelMetrics(a.snapshot.Load))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []float64
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				found = append(found, m.GetGauge().GetValue())
			}
		}
	}
	return found
}

func TestReadiness(t *testing.T) {
	good := tunnelSnapshot{name: "fs-1", inForce: true, up: true, status: tunnelspec.TunnelStatus{Listening: true}}
	unhealthy := good
	unhealthy.up = false
	// Probes of its address are answered by the old pod.
	portTaken := tunnelSnapshot{name: "fs-1", up: true, status: tunnelspec.TunnelStatus{
		Process: &tunnelspec.Problem{Reason: tunnelspec.ReasonPortTaken},
	}}
	notListening := portTaken
	notListening.status.Process = nil
	with := func(change func(*snapshot)) snapshot {
		v := snapshot{tunnels: []tunnelSnapshot{good}}
		v.hasTable, v.status.PID, v.planned = true, 1, true
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
		"no supervisor":                {with(func(v *snapshot) { v.status.PID = 0 }), "supervisor", "supervisor", "supervisor"},
		"no plan":                      {with(func(v *snapshot) { v.planned, v.tunnels = false, nil }), "no plan", "no plan", "no plan"},
		"unhealthy":                    {with(func(v *snapshot) { v.tunnels[0] = unhealthy }), "not healthy yet: fs-1", "", ""},
		"no certificate":               {with(func(v *snapshot) { v.plan.AwaitingCertificate = []string{"fs-2"} }), "certificate yet: fs-2", "", ""},
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
