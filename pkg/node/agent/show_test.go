package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// showingAgent has an idle tunnel fs-1 on a node that it knows, and sends what it writes.
func showingAgent(t *testing.T) (a *Agent, writes chan v1alpha1.NodeTunnelsStatus) {
	t.Helper()
	a = reportingAgent(record.NewFakeRecorder(100))
	writes = make(chan v1alpha1.NodeTunnelsStatus, 100)
	a.shown, a.inbox.inputs.node = make(chan struct{}, 1), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	tunnel := routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}, Port: 20490, Active: routing.MountTarget{Address: netip.MustParseAddr("10.0.0.4")}}
	a.plan.Tunnels, a.tunnels = []routing.Tunnel{tunnel}, map[string]*tunnelState{"fs-1": {Tunnel: tunnel}}
	a.options.WriteStatus = func(_ context.Context, _ *corev1.Node, s v1alpha1.NodeTunnelsStatus) error {
		writes <- s
		return nil
	}
	return a, writes
}

func TestObjectShowsATunnelsProblem(t *testing.T) {
	a, _ := showingAgent(t)
	now := time.Now()
	a.tunnels["fs-1"].judged = &probe.Result{Err: context.DeadlineExceeded}
	a.report(t.Context(), now)
	got := a.wanted.Load().status
	want := []v1alpha1.Tunnel{{Name: "fs-1", Port: 20490, MountTarget: "10.0.0.4", Problems: []v1alpha1.Problem{{
		Reason: "TunnelUnhealthy", Message: "tunnel to fs-1 on port 20490 is unhealthy (Timeout): context deadline exceeded",
		Since: metav1.NewTime(now), Cause: &v1alpha1.Cause{Kind: "MountTarget", Name: "10.0.0.4", Reason: "Timeout"},
	}}}}
	if diff := cmp.Diff(want, got.Tunnels); diff != "" || got.Total != 1 || got.Failing != 1 {
		t.Errorf("got %+v, tunnels mismatch (-want +got):\n%s", got, diff)
	}
	for _, c := range got.Conditions {
		wanted := map[string]metav1.ConditionStatus{status.TunnelsServe: metav1.ConditionFalse, status.Ready: metav1.ConditionFalse}[c.Type]
		if wanted == "" {
			wanted = metav1.ConditionTrue
		}
		if c.Status != wanted {
			t.Errorf("got %+v, want %s", c, wanted)
		}
	}
}

// TestObjectIsWrittenOnChangeOnly: nodes by the thousand write one each.
func TestObjectIsWrittenOnChangeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, writes := showingAgent(t)
		go a.writeStatus(t.Context())
		steps := func(seconds int) (written int) {
			for range seconds {
				a.report(t.Context(), time.Now())
				<-time.After(time.Second)
			}
			written = len(writes)
			for range written {
				<-writes
			}
			return written
		}
		if got := steps(3600); got != 1 {
			t.Errorf("got %d writes in an hour without a change, want 1", got)
		}
		if got := steps(3600); got != 1 {
			t.Errorf("got %d writes in the next hour, want one, if somebody has deleted the object", got)
		}
		steps(1800)
		a.inbox.inputs.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another"}}
		if got := steps(60); got != 1 {
			t.Errorf("got %d writes when the node was registered again, want 1", got)
		}
		for range 30 { // a tunnel that fails and recovers all the time
			a.tunnels["fs-1"].judged = &probe.Result{Err: context.DeadlineExceeded}
			steps(1)
			a.tunnels["fs-1"].judged = &probe.Result{}
		}
		a.tunnels["fs-1"].judged = &probe.Result{Err: context.DeadlineExceeded}
		if got := steps(3600); got > 1 {
			t.Errorf("got %d writes in an hour with a problem, want 1", got)
		}
	})
}

// TestStartingAgentIsShownWhenItIsReady, or not for a while, or has a problem: a rollout writes one for each node.
func TestStartingAgentIsShownWhenItIsReady(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		edit  func(*Agent)
		want  bool
	}{
		"just started":       {startTime - 1, func(*Agent) {}, false},
		"ready":              {startTime - 1, func(a *Agent) { a.snapshot.Store(&snapshot{wasReady: true}) }, true},
		"a problem":          {startTime - 1, func(a *Agent) { a.problem = tableProblem{err: errors.New("bad")} }, true},
		"not ready for long": {startTime, func(*Agent) {}, true},
	} {
		a, _ := showingAgent(t)
		a.started = time.Now()
		tt.edit(a)
		a.report(t.Context(), a.started.Add(tt.after))
		if got := a.wanted.Load() != nil; got != tt.want {
			t.Errorf("%s: shown is %v", name, got)
		}
	}
}

func TestChangesAreWrittenEveryTenSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, writes := showingAgent(t)
		go a.writeStatus(t.Context())
		for i := range 100 { // a change each second
			a.problem = tableProblem{err: errors.New(time.Duration(i).String())}
			a.report(t.Context(), time.Now())
			<-time.After(time.Second)
		}
		if got := len(writes); got > 11 {
			t.Errorf("got %d writes in 100 s, want one every 10 s", got)
		}
	})
}

// TestFailedWriteIsRepeated with what is true by then.
func TestFailedWriteIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, writes := showingAgent(t)
		write, failures := a.options.WriteStatus, 2
		a.options.WriteStatus = func(ctx context.Context, node *corev1.Node, s v1alpha1.NodeTunnelsStatus) error {
			if failures--; failures >= 0 {
				return errors.New("no apiserver")
			}
			return write(ctx, node, s)
		}
		go a.writeStatus(t.Context())
		a.report(t.Context(), time.Now())
		<-time.After(showInterval + time.Second)
		a.problem.deleted, a.hasTable = true, true
		a.report(t.Context(), time.Now())
		<-time.After(2 * showInterval)
		if len(writes) != 1 {
			t.Fatalf("got %d writes, want 1", len(writes))
		}
		if got := <-writes; got.Conditions[2].Reason != "TableMissing" {
			t.Errorf("got %+v", got.Conditions)
		}
	})
}

// TestLatencyIsShownAndHardlyEverChanges: a slow probe between others, and a time near a boundary, cause no writes.
func TestLatencyIsShownAndHardlyEverChanges(t *testing.T) {
	a, _ := showingAgent(t)
	tunnel := a.tunnels["fs-1"]
	tunnel.usedAt = time.Now()
	shown := func(took ...time.Duration) int64 {
		for _, d := range took {
			tunnel.addTook(probe.Result{Took: d})
		}
		a.showing.latest = a.nodeTunnels(time.Now())
		return a.showing.latest.Tunnels[0].LatencyMillis
	}
	const ms = time.Millisecond
	for i, step := range []struct {
		took []time.Duration
		want int64
	}{
		{nil, 0},
		{[]time.Duration{3 * ms}, 4},
		{[]time.Duration{30 * ms}, 4},     // one slow probe
		{[]time.Duration{1900 * 1000}, 4}, // just below the boundary
		{[]time.Duration{900 * 1000}, 1},
	} {
		if got := shown(step.took...); got != step.want {
			t.Errorf("step %d: got %d ms, want %d", i, got, step.want)
		}
	}
	tunnel.addTook(probe.Result{Took: 1, Err: context.DeadlineExceeded})
	tunnel.addTook(probe.Result{Took: 1, ServerOnly: true})
	if tunnel.took != 900*1000 {
		t.Errorf("a failed probe, or one past the tunnel, counts: %v", tunnel.took)
	}
}

func TestLanesOfTunnelsInUseAreShown(t *testing.T) {
	a, _ := showingAgent(t)
	tunnel := a.tunnels["fs-1"]
	a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"fs-1": {Lanes: &tunnelspec.Lanes{Open: 3}}}
	if s := a.nodeTunnels(time.Now()); len(s.Tunnels) > 0 && s.Tunnels[0].Lanes != 0 {
		t.Errorf("of a tunnel without clients: %+v", s.Tunnels)
	}
	tunnel.usedAt = time.Now()
	if s := a.nodeTunnels(time.Now()); len(s.Tunnels) != 1 || s.Tunnels[0].Lanes != 3 {
		t.Errorf("got %+v", s.Tunnels)
	}
}
