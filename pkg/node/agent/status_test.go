package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// The agent detects that the supervisor has ended, even if the node's clock is set meanwhile.
func TestStatusAgeIsMeasuredByTheMonotonicClock(t *testing.T) {
	start := time.Now()
	type read struct {
		after   time.Duration // since the start
		written time.Duration // likewise, by the node's clock; none for no status
		fresh   bool
	}
	const none = time.Duration(-1 << 62)
	tests := map[string][]read{
		"runs":                               {{0, -time.Second, true}, {9 * time.Second, 9 * time.Second, true}, {40 * time.Second, 40 * time.Second, true}},
		"ends":                               {{0, 0, true}, {30 * time.Second, 0, true}, {31 * time.Second, 0, false}},
		"ended, clock set back":              {{0, time.Hour, true}, {31 * time.Second, time.Hour, false}},
		"runs, clock set forward":            {{0, 0, true}, {9 * time.Second, time.Hour, true}, {18 * time.Second, time.Hour + 9*time.Second, true}},
		"runs, clock was set forward before": {{0, -time.Hour, false}, {9 * time.Second, -time.Hour + 9*time.Second, true}},
		"ended before the agent started":     {{0, -31 * time.Second, false}, {time.Second, -31 * time.Second, false}},
		"starts":                             {{0, none, false}, {time.Second, time.Second, true}},
		"restarts":                           {{0, 0, true}, {time.Second, none, false}, {2 * time.Second, 2 * time.Second, true}},
	}
	for name, reads := range tests {
		t.Run(name, func(t *testing.T) {
			var status tunnelspec.Status
			var err error
			a := &Agent{options: Options{
				Status: func() (tunnelspec.Status, error) { return status, err },
				Log:    slog.New(slog.DiscardHandler),
			}}
			for _, r := range reads {
				status, err = tunnelspec.Status{PID: 1, UpdatedAt: start.Add(r.written).Round(0)}, nil
				if r.written == none {
					status, err = tunnelspec.Status{}, fs.ErrNotExist
				}
				a.readStatus(start.Add(r.after))
				if fresh := a.status.PID != 0; fresh != r.fresh {
					t.Errorf("after %s: fresh %v, want %v", r.after, fresh, r.fresh)
				}
			}
		})
	}
}

// Clients notice a mount target that resets connections before the next probe is due.
func TestTunnelIsProbedAtOnceWhenAClientsConnectionFails(t *testing.T) {
	rounds := make(chan probe.Result)
	probes := probe.NewManager(failingDialer{}, time.Hour, func(ctx context.Context, r probe.Result) {
		select {
		case rounds <- r:
		case <-ctx.Done():
		}
	})
	defer probes.Close()
	server := netip.MustParseAddrPort("127.0.0.1:2049")
	probes.SetTasks(t.Context(), []probe.Task{{Name: "fs-1", DirectServer: server, Servers: []netip.AddrPort{server}}})
	<-rounds // the first one
	state := &tunnelState{Tunnel: routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}}, inForce: time.Now()}
	a := &Agent{probes: probes, tunnels: map[string]*tunnelState{"fs-1": state}}
	status := tunnelspec.TunnelStatus{Listening: true, Generation: tunnelspec.Generation(state.Spec)}
	failAt := func(at time.Time) {
		status.Connection = &tunnelspec.Problem{Reason: tunnelspec.ReasonConnectionLost, At: at}
		a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"fs-1": status}
		a.observeSupervisor()
	}
	first, second := time.Now(), time.Now().Add(time.Second)
	state.result = &probe.Result{Err: errors.New("silent")}
	if failAt(first); !state.failedAt.IsZero() {
		t.Error("a tunnel that is known to be unhealthy was probed again")
	}
	state.result = &probe.Result{}
	for _, at := range []time.Time{first, second} {
		failAt(at)
		<-rounds
		if failAt(at); state.failedAt != at {
			t.Errorf("got a probe for what failed at %s, want one for %s", state.failedAt, at)
		}
	}
}

type failingDialer struct{}

func (failingDialer) Tunnel(context.Context, netip.AddrPort) (net.Conn, error) {
	return nil, errors.New("no server")
}

func (failingDialer) Server(context.Context, netip.AddrPort, probe.Peer) (net.Conn, error) {
	return nil, errors.New("no server")
}
