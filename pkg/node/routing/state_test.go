package routing_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

var sameAddresses = cmpopts.EquateComparable(netip.Addr{})

func TestLoadedStateHasNoTimesInTheFuture(t *testing.T) {
	past, future := now.Add(-time.Hour), now.Add(24*time.Hour)
	stored := routing.State{Port: 20490, Restarts: 3, RestartSerial: 4, RestartedAt: past, HealthySince: now}
	if diff := cmp.Diff(stored, stored.Loaded(now), sameAddresses); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	late := routing.State{
		Port: 20490, Restarts: 3, RestartSerial: 4, RestartedAt: future, HealthySince: future, FailingSince: future,
		NearestHealthySince: future, MissingSince: future,
	}
	if diff := cmp.Diff(routing.State{Port: 20490, Restarts: 3, RestartSerial: 4}, late.Loaded(now), sameAddresses); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
}

// TestTunnelFailsOverAfterTheClockWasSetBack between the restart of the tunnel and that of the agent.
func TestTunnelFailsOverAfterTheClockWasSetBack(t *testing.T) {
	s := routing.State{Port: 20490, Restarts: 1, RestartSerial: 1, RestartedAt: now.Add(24 * time.Hour)}.Loaded(now)
	s, action := s.Next(routing.Observation{At: now, TimedOut: true, Direct: direct(down, answered, down)}, targets)
	if action != routing.Failover || s.Preferred != second.Address {
		t.Errorf("got %q to %v, want a failover to the mount target that answers", action, s.Preferred)
	}
}
