package routing_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

const (
	unknown         = routing.DirectUnknown
	answered        = routing.DirectAnswered
	down            = routing.DirectDown
	handshakeFailed = routing.DirectHandshakeFailed
)

var (
	nearest = routing.MountTarget{Address: address("10.0.1.4"), Zone: "b", Distance: routing.SameZone}
	second  = routing.MountTarget{Address: address("10.0.0.4"), Zone: "a", Distance: routing.OtherZone}
	third   = routing.MountTarget{Address: address("10.0.2.4"), Zone: "c", Distance: routing.OtherZone}
	targets = []routing.MountTarget{nearest, second, third}
)

// direct are results of direct probes of the nearest, second and third mount target.
func direct(n, s, t routing.DirectResult) map[netip.Addr]routing.DirectResult {
	return map[netip.Addr]routing.DirectResult{nearest.Address: n, second.Address: s, third.Address: t}
}

func TestNext(t *testing.T) {
	long := now.Add(-time.Hour)
	tests := map[string]struct {
		state       routing.State
		observation routing.Observation
		action      routing.Action
		preferred   netip.Addr
	}{
		"healthy": {routing.State{}, routing.Observation{Healthy: true}, routing.NoAction, netip.Addr{}},
		"healthy, but its mount target is down": {
			routing.State{}, routing.Observation{Healthy: true, Direct: direct(down, answered, answered)},
			routing.Reorder, second.Address,
		},
		"healthy, but its mount target is down and no other is known to answer": {
			routing.State{}, routing.Observation{Healthy: true, Direct: direct(down, unknown, down)},
			routing.NoAction, netip.Addr{},
		},
		"old connections work, new ones fail": {
			routing.State{}, routing.Observation{Established: true, Direct: direct(down, down, answered)},
			routing.Reorder, third.Address,
		},
		"old connections work, new ones fail, no other mount target is known to answer": {
			routing.State{}, routing.Observation{Established: true, Direct: direct(unknown, unknown, unknown)},
			routing.NoAction, netip.Addr{},
		},
		"old connections are stuck for one round": {
			routing.State{}, routing.Observation{Healthy: true, Stuck: true, Direct: direct(answered, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"old connections are stuck for two rounds": {
			routing.State{SuspectRounds: 1}, routing.Observation{Healthy: true, Stuck: true, Direct: direct(answered, answered, answered)},
			routing.Restart, netip.Addr{},
		},
		"old connections are stuck for two rounds, during backoff": {
			routing.State{SuspectRounds: 1, Restarts: 1, RestartedAt: now.Add(-14 * time.Second)},
			routing.Observation{Healthy: true, Stuck: true}, routing.NoAction, netip.Addr{},
		},
		"times out, its mount target is down": {
			routing.State{}, routing.Observation{TimedOut: true, Direct: direct(down, answered, answered)},
			routing.Failover, second.Address,
		},
		"times out, its mount target and the second are down": {
			routing.State{}, routing.Observation{TimedOut: true, Direct: direct(down, down, answered)},
			routing.Failover, third.Address,
		},
		"times out, the preferred mount target is down, the nearest answers": {
			routing.State{Preferred: second.Address}, routing.Observation{TimedOut: true, Direct: direct(answered, down, answered)},
			routing.Failover, netip.Addr{},
		},
		"times out, all mount targets are down": {
			routing.State{FailingSince: long}, routing.Observation{TimedOut: true, Direct: direct(down, down, down)},
			routing.NoAction, netip.Addr{},
		},
		"times out for one round, its mount target answers": {
			routing.State{}, routing.Observation{TimedOut: true, Direct: direct(answered, down, down)},
			routing.NoAction, netip.Addr{},
		},
		"times out for two rounds, its mount target answers": {
			routing.State{SuspectRounds: 1}, routing.Observation{TimedOut: true, Direct: direct(answered, down, down)},
			routing.Restart, netip.Addr{},
		},
		"times out for two rounds, its mount target is down in the second": {
			routing.State{SuspectRounds: 1}, routing.Observation{TimedOut: true, Direct: direct(down, answered, down)},
			routing.Failover, second.Address,
		},
		"connections are closed for four rounds, its mount target answers": {
			routing.State{FailingSince: long, SuspectRounds: 3}, routing.Observation{Direct: direct(answered, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"connections are closed for five rounds, its mount target answers": {
			routing.State{FailingSince: long, SuspectRounds: 4}, routing.Observation{Direct: direct(answered, answered, answered)},
			routing.Restart, netip.Addr{},
		},
		"connections are closed for long, a connection is open": {
			routing.State{FailingSince: long, SuspectRounds: 9}, routing.Observation{HasConnections: true, Direct: direct(answered, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"connections are closed for long, an old one works": {
			routing.State{FailingSince: long, SuspectRounds: 9}, routing.Observation{Established: true, Direct: direct(answered, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"connections are closed for long, its mount target denies access": {
			routing.State{FailingSince: long, SuspectRounds: 9}, routing.Observation{Direct: direct(unknown, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"connections are closed for long, all mount targets are down": {
			routing.State{FailingSince: long, SuspectRounds: 9}, routing.Observation{Direct: direct(down, down, down)},
			routing.NoAction, netip.Addr{},
		},
		"times out briefly, the second mount target is unknown": {
			routing.State{}, routing.Observation{TimedOut: true, Direct: direct(down, unknown, down)},
			routing.NoAction, netip.Addr{},
		},
		"times out for long, the second mount target is unknown": {
			routing.State{FailingSince: long}, routing.Observation{TimedOut: true, Direct: direct(down, unknown, down)},
			routing.Failover, second.Address,
		},
		"all handshakes fail": {
			routing.State{FailingSince: long}, routing.Observation{HandshakeFailed: true, Direct: direct(handshakeFailed, handshakeFailed, handshakeFailed)},
			routing.NoAction, netip.Addr{},
		},
		"handshake fails, others answer": {
			routing.State{}, routing.Observation{Direct: direct(handshakeFailed, answered, answered)},
			routing.Failover, second.Address,
		},
		"handshake fails, no other is known to answer": {
			routing.State{FailingSince: long}, routing.Observation{Direct: direct(handshakeFailed, unknown, down)},
			routing.NoAction, netip.Addr{},
		},
		"handshake fails, old connections work": {
			routing.State{}, routing.Observation{Established: true, Direct: direct(handshakeFailed, answered, answered)},
			routing.Reorder, second.Address,
		},
		"handshake fails, a connection is open": {
			routing.State{}, routing.Observation{HasConnections: true, Direct: direct(handshakeFailed, answered, answered)},
			routing.Reorder, second.Address,
		},
		"handshake fails for the agent, not for stunnel": {
			routing.State{}, routing.Observation{Healthy: true, Direct: direct(handshakeFailed, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"handshake fails for stunnel only, for one round": {
			routing.State{}, routing.Observation{HandshakeFailed: true, Direct: direct(answered, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"handshake fails for stunnel only, for two rounds": {
			routing.State{SuspectRounds: 1}, routing.Observation{HandshakeFailed: true, Direct: direct(answered, answered, answered)},
			routing.Failover, second.Address,
		},
		"handshake fails for stunnel only, for two rounds, no other answers": {
			routing.State{SuspectRounds: 1}, routing.Observation{HandshakeFailed: true, Direct: direct(answered, handshakeFailed, down)},
			routing.NoAction, netip.Addr{},
		},
		"access is denied": {
			routing.State{FailingSince: long, SuspectRounds: 1}, routing.Observation{HandshakeFailed: true, Direct: direct(unknown, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"its mount target is down, during backoff": {
			routing.State{Restarts: 1, RestartedAt: now.Add(-14 * time.Second)},
			routing.Observation{TimedOut: true, Direct: direct(down, answered, answered)},
			routing.NoAction, netip.Addr{},
		},
		"its mount target is down, after backoff": {
			routing.State{Restarts: 1, RestartedAt: now.Add(-15 * time.Second)},
			routing.Observation{TimedOut: true, Direct: direct(down, answered, answered)},
			routing.Failover, second.Address,
		},
		"another is preferred, the nearest was not probed": {
			routing.State{Preferred: second.Address, RestartedAt: long}, routing.Observation{Healthy: true}, routing.NoAction, second.Address,
		},
		"another is preferred, the nearest has answered for long": {
			routing.State{Preferred: second.Address, RestartedAt: long, NearestHealthySince: now.Add(-5 * time.Minute)},
			routing.Observation{Healthy: true, Direct: map[netip.Addr]routing.DirectResult{nearest.Address: answered}},
			routing.Return, netip.Addr{},
		},
		"another is preferred, the nearest is down again": {
			routing.State{Preferred: second.Address, RestartedAt: long, NearestHealthySince: now.Add(-5 * time.Minute)},
			routing.Observation{Healthy: true, Direct: map[netip.Addr]routing.DirectResult{nearest.Address: down}},
			routing.NoAction, second.Address,
		},
		"an old connection is far, the nearest has answered for long": {
			routing.State{RestartedAt: long, NearestHealthySince: now.Add(-5 * time.Minute)},
			routing.Observation{Healthy: true, FarConnection: true, Direct: map[netip.Addr]routing.DirectResult{nearest.Address: answered, second.Address: answered}},
			routing.Return, netip.Addr{},
		},
		"an old connection was far and has ended": {
			routing.State{RestartedAt: long, NearestHealthySince: now.Add(-5 * time.Minute)},
			routing.Observation{Healthy: true},
			routing.NoAction, netip.Addr{},
		},
		"the preferred mount target left the table": {
			routing.State{Preferred: address("10.9.9.9")}, routing.Observation{Healthy: true}, routing.NoAction, address("10.9.9.9"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.observation.At = now
			got, action := tt.state.Next(tt.observation, targets)
			if action != tt.action || got.Preferred != tt.preferred {
				t.Errorf("got %q, preferring %v, want %q, preferring %v", action, got.Preferred, tt.action, tt.preferred)
			}
			restarts := action == routing.Failover || action == routing.Restart || action == routing.Return
			if restarted := got.RestartSerial > tt.state.RestartSerial; restarted != restarts {
				t.Errorf("after %q the serial went from %d to %d", action, tt.state.RestartSerial, got.RestartSerial)
			}
		})
	}
}

func TestOnlyConsecutiveSuspectRoundsRestart(t *testing.T) {
	const none, restart = routing.NoAction, routing.Restart
	stuck := routing.Observation{Healthy: true, Stuck: true}
	timedOut := routing.Observation{TimedOut: true, Direct: direct(answered, answered, answered)}
	healthy, closed, established := routing.Observation{Healthy: true}, routing.Observation{}, routing.Observation{Established: true}
	tests := map[string]struct {
		observations []routing.Observation
		actions      []routing.Action
	}{
		"stuck for three rounds":  {[]routing.Observation{stuck, stuck, stuck}, []routing.Action{none, restart, none}},
		"healthy in between":      {[]routing.Observation{stuck, healthy, stuck, stuck}, []routing.Action{none, none, none, restart}},
		"timed out, then stuck":   {[]routing.Observation{timedOut, stuck}, []routing.Action{none, restart}},
		"closed in between":       {[]routing.Observation{timedOut, closed, timedOut}, []routing.Action{none, none, none}},
		"established in between":  {[]routing.Observation{timedOut, established, timedOut}, []routing.Action{none, none, none}},
		"timed out in two rounds": {[]routing.Observation{timedOut, timedOut}, []routing.Action{none, restart}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			state, actions := routing.State{}, []routing.Action(nil)
			for i, o := range tt.observations {
				o.At = now.Add(time.Duration(i) * 2 * time.Second)
				var action routing.Action
				state, action = state.Next(o, targets)
				actions = append(actions, action)
			}
			if diff := cmp.Diff(tt.actions, actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlappingMountTargetsAreBackedOff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	state, restarts := routing.State{}, 0
	var last time.Time
	for at := now; at.Before(now.Add(24 * time.Hour)); at = at.Add(10 * time.Second) {
		observation := routing.Observation{At: at, Healthy: true}
		if random.IntN(3) == 0 {
			observation = routing.Observation{At: at, TimedOut: true}
		}
		result := func() routing.DirectResult { return []routing.DirectResult{answered, down}[random.IntN(2)] }
		observation.Direct = direct(result(), result(), result())
		var action routing.Action
		state, action = state.Next(observation, targets)
		if action == routing.NoAction || action == routing.Reorder {
			continue
		}
		if gap := at.Sub(last); restarts > 0 && gap < 15*time.Second {
			t.Errorf("%s only %s after the one before", action, gap)
		}
		restarts, last = restarts+1, at
	}
	// 16 minutes apart are 90 a day; the first ones are closer.
	if restarts > 100 || restarts < 50 {
		t.Errorf("%d restarts in a day, want 50 to 100", restarts)
	}
}

func TestHealthyTunnelResetsBackoff(t *testing.T) {
	state := routing.State{Restarts: 7, RestartedAt: now}
	for at := now; !at.After(now.Add(10 * time.Minute)); at = at.Add(10 * time.Second) {
		state, _ = state.Next(routing.Observation{At: at, Healthy: true}, targets)
	}
	if state.Restarts != 0 {
		t.Errorf("%d restarts still count after 10 healthy minutes", state.Restarts)
	}
}

func TestTunnelStaysWhereAllDistancesAreEqual(t *testing.T) {
	equal := []routing.MountTarget{
		{Address: nearest.Address, Distance: routing.OtherZone}, {Address: second.Address, Distance: routing.OtherZone},
	}
	state := routing.State{Preferred: second.Address}
	for at := now; at.Before(now.Add(time.Hour)); at = at.Add(10 * time.Second) {
		var action routing.Action
		state, action = state.Next(routing.Observation{At: at, Healthy: true, Direct: direct(answered, answered, answered)}, equal)
		if action != routing.NoAction {
			t.Fatalf("%s, although no mount target is nearer", action)
		}
	}
}

func TestFailoverAndReturn(t *testing.T) {
	state := routing.State{}
	var actions []string
	repeat := func(from, to time.Duration, observation routing.Observation) {
		for at := from; at < to; at += 10 * time.Second {
			observation.At = now.Add(at)
			var action routing.Action
			if state, action = state.Next(observation, targets); action != routing.NoAction {
				actions = append(actions, fmt.Sprint(action, " after ", at))
			}
		}
	}
	nearestAnswers := map[netip.Addr]routing.DirectResult{nearest.Address: answered}
	nearestDown := map[netip.Addr]routing.DirectResult{nearest.Address: down}
	repeat(0, time.Minute, routing.Observation{Healthy: true})
	repeat(time.Minute, time.Minute+10*time.Second, routing.Observation{TimedOut: true, Direct: direct(down, answered, answered)})
	repeat(70*time.Second, 3*time.Minute, routing.Observation{Healthy: true, Direct: nearestDown})
	repeat(3*time.Minute, 7*time.Minute, routing.Observation{Healthy: true, Direct: nearestAnswers})
	repeat(7*time.Minute, 7*time.Minute+10*time.Second, routing.Observation{Healthy: true, Direct: nearestDown}) // restarts the wait
	repeat(7*time.Minute+10*time.Second, 20*time.Minute, routing.Observation{Healthy: true, Direct: nearestAnswers})
	want := []string{"Failover after 1m0s", "Return after 12m10s"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if state.Preferred.IsValid() || state.RestartSerial != 2 {
		t.Errorf("got %+v, want the nearest preferred after two restarts", state)
	}
}

// TestTunnelThatClosesConnectionsIsRestarted with waits that grow, for as long as it does.
func TestTunnelThatClosesConnectionsIsRestarted(t *testing.T) {
	s, restarts := routing.State{}, 0
	for after := time.Duration(0); after < 24*time.Hour; after += 2 * time.Second {
		next, action := s.Next(routing.Observation{At: now.Add(after), Direct: direct(answered, answered, answered)}, targets)
		if s = next; action == routing.Restart {
			restarts++
		} else if action != routing.NoAction {
			t.Fatalf("%s after %s, want restarts only", action, after)
		}
		if after == 10*time.Second && restarts != 1 {
			t.Errorf("got %d restarts within 10 s, want one", restarts)
		}
	}
	if restarts < 24 || restarts > 120 {
		t.Errorf("got %d restarts in a day, want some each hour", restarts)
	}
}
