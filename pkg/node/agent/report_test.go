package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

// TestHealthIsReportedWhenItChanges wants events for a tunnel's first failure, for denied access also
// after another failure, and for its recovery after healthyAfter.
func TestHealthIsReportedWhenItChanges(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	a, state := reportingAgent(recorder), &tunnelState{}
	a.plan.Tunnels, a.tunnels = []routing.Tunnel{{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}}}, map[string]*tunnelState{"fs-1": state}
	now := time.Now()
	for i, step := range []struct {
		err   error
		after time.Duration
		want  string // "" for no event
	}{
		{context.DeadlineExceeded, 0, "(Timeout)"},
		{context.DeadlineExceeded, 1, ""},
		{nfsnull.ErrDenied, 1, "(Denied)"},
		{context.DeadlineExceeded, 1, ""},
		{nfsnull.ErrDenied, 1, ""},
		{nil, 1, ""},
		{nil, healthyAfter, "Normal TunnelHealthy TunnelUnhealthy of Tunnel fs-1 has ended"},
		{nfsnull.ErrDenied, 1, "(Denied)"},
		{nfsnull.ErrDenied, healthyAfter, ""},
	} {
		now = now.Add(step.after)
		state.judged = &probe.Result{Err: step.err, At: now}
		a.report(t.Context(), now)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("step %d, after %v: got event %q, want %q", i, step.err, got, step.want)
		}
	}
}

func reportingAgent(recorder record.EventRecorder) *Agent {
	return &Agent{
		options: Options{Events: recorder, Log: slog.New(slog.DiscardHandler), Node: "n"},
		inbox:   &inbox{}, metrics: newMetrics(nil), held: status.Set{Linger: healthyAfter},
	}
}

// TestHijackedTunnelIsProbedThroughItsPort, although no client uses it: a probe of the mount target would
// say that the port is not hijacked any more.
func TestHijackedTunnelIsProbedThroughItsPort(t *testing.T) {
	tunnel := routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}, MountTargets: []routing.MountTarget{{Address: netip.MustParseAddr("10.0.0.4")}}}
	tunnel.Active = tunnel.MountTargets[0]
	for name, tt := range map[string]struct {
		result *probe.Result
		direct bool
	}{
		"not probed": {nil, true},
		"healthy":    {&probe.Result{}, true},
		"unhealthy":  {&probe.Result{Err: context.DeadlineExceeded}, true},
		"hijacked":   {&probe.Result{Err: probe.ErrHijacked}, false},
	} {
		a := &Agent{
			options: Options{Routing: routing.Settings{ServerPort: 2049}},
			tunnels: map[string]*tunnelState{"fs-1": {Tunnel: tunnel, result: tt.result}},
		}
		a.plan.Tunnels = []routing.Tunnel{tunnel}
		if task := a.tasks()[0]; task.DirectServer.IsValid() != tt.direct || task.InUse {
			t.Errorf("%s: got %+v, want a probe of the mount target: %v", name, task, tt.direct)
		}
	}
}

// TestUsedTunnelIsProbedOverNewConnections when clients have none, or stunnel has no server for theirs.
func TestUsedTunnelIsProbedOverNewConnections(t *testing.T) {
	tunnel := routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}, Port: 20490, MountTargets: []routing.MountTarget{{}}}
	for name, tt := range map[string]struct {
		usedAt  time.Time
		clients int
		problem *tunnelspec.Problem
		want    bool
	}{
		"clients are connected":      {time.Now(), 1, nil, false},
		"a client could not connect": {time.Now(), 1, &tunnelspec.Problem{Reason: tunnelspec.ReasonConnectRefused}, true},
		"the last client is gone":    {time.Now(), 0, nil, true},
		"not in use":                 {time.Time{}, 0, &tunnelspec.Problem{Reason: tunnelspec.ReasonConnectRefused}, false},
	} {
		a := &Agent{
			clients: sockets.ClientCounts{loopback(20490): tt.clients},
			tunnels: map[string]*tunnelState{"fs-1": {Tunnel: tunnel, usedAt: tt.usedAt}},
		}
		a.plan.Tunnels = []routing.Tunnel{tunnel}
		a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"fs-1": {Connection: tt.problem}}
		if got := a.tasks()[0].Renew; got != tt.want {
			t.Errorf("%s: new connections in each round %v, want %v", name, got, tt.want)
		}
	}
}

// TestMissingTunnelsClientsAreKnownBeforeTheFirstPlan, which may remove it.
func TestMissingTunnelsClientsAreKnownBeforeTheFirstPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		clients int
		err     error
		want    bool
	}{
		"none":      {},
		"one":       {clients: 1, want: true},
		"not known": {err: errors.New("not permitted"), want: true},
	} {
		a := &Agent{
			options: Options{
				Status: func() (tunnelspec.Status, error) { return tunnelspec.Status{}, fs.ErrNotExist },
				Clients: func() (sockets.ClientCounts, error) {
					return sockets.ClientCounts{netip.MustParseAddrPort("127.0.0.1:20499"): tt.clients}, tt.err
				},
				Listening: func() (sockets.Listeners, error) { return nil, nil },
				Log:       slog.New(slog.DiscardHandler),
			},
			inbox: &inbox{}, states: map[string]routing.State{"fs-9": {Port: 20499, MissingSince: time.Now().Add(-time.Hour)}},
			metrics: newMetrics(nil),
		}
		a.observe(time.Now())
		if used := a.used(time.Now())["fs-9"]; used != tt.want {
			t.Errorf("%s: used %v, want %v", name, used, tt.want)
		}
		if got := testutil.ToFloat64(a.metrics.sockets); got != number(tt.err != nil) {
			t.Errorf("%s: sockets_unknown is %v", name, got)
		}
	}
}

// TestIdleTunnelsStayIdleWhileConnectionsAreUnknown: probes through all of them would start all stunnels.
func TestIdleTunnelsStayIdleWhileConnectionsAreUnknown(t *testing.T) {
	a := &Agent{clientsUnknown: true}
	a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"idle": {State: tunnelspec.StateIdle}, "running": {State: tunnelspec.StateRunning}}
	for name, want := range map[string]bool{"idle": false, "running": true} {
		if got := a.isUsedNow(routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: name}, Port: 20490}); got != want {
			t.Errorf("%s: in use %v, want %v", name, got, want)
		}
	}
}

// The NFS client has no connection for moments, above all while its mount target is silent.
func TestTunnelIsUsedForAWhileAfterItsLastClient(t *testing.T) {
	now := time.Now()
	a := &Agent{
		states:  map[string]routing.State{"fs-1": {Port: 20490}, "fs-2": {Port: 20491}},
		tunnels: map[string]*tunnelState{"fs-1": {usedAt: now}},
	}
	for after, want := range map[time.Duration]bool{inUseFor - time.Second: true, inUseFor: false} {
		if used := a.used(now.Add(after)); used["fs-1"] != want || used["fs-2"] {
			t.Errorf("after %s: got %v, want fs-1: %v", after, used, want)
		}
	}
}

// TestEndOfAProblemIsReported once it was not found for a while, and the problem anew when it comes back.
func TestEndOfAProblemIsReported(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	a := reportingAgent(recorder)
	now := time.Now()
	const (
		unusable = "Warning TargetUnusable target fs-1 cannot be served (Reason): why map[" + wellknown.AnnotationTunnel + ":fs-1]"
		ended    = "Normal ProblemEnded TargetUnusable of Tunnel fs-1 has ended map[" + wellknown.AnnotationTunnel + ":fs-1]"
		missing  = "Warning TableMissing ConfigMap efs-stunnel is gone; what it last said is served on"
	)
	broken := []routing.UnusableTarget{{Name: "fs-1", Reason: "Reason", Message: "why"}}
	for i, step := range []struct {
		after    time.Duration
		unusable []routing.UnusableTarget
		deleted  bool
		want     []string
	}{
		{0, broken, false, []string{unusable}},
		{time.Second, broken, false, nil},
		{time.Second, nil, false, nil},
		{time.Second, broken, true, []string{missing}},
		{healthyAfter - time.Second, nil, true, nil},
		{time.Second, nil, true, []string{ended}},
		{time.Second, broken, false, []string{unusable}},
		{healthyAfter, broken, false, []string{"Normal ProblemEnded TableMissing of Node n has ended"}},
	} {
		now = now.Add(step.after)
		a.plan.Unusable, a.hasTable, a.problem.deleted = step.unusable, true, step.deleted
		a.report(t.Context(), now)
		var got []string
		for range len(recorder.Events) {
			got = append(got, <-recorder.Events)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}
