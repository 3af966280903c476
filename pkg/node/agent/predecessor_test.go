package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestPredecessorIsAnotherListenerOfThisUser(t *testing.T) {
	const inode, other = 1, 2
	tests := map[string]struct {
		address string
		inodes  []uint32
		own     string // that this pod's supervisor listens at
		ready   bool   // this pod was
		err     error
		want    bool
	}{
		"another pod's":                        {address: "127.0.0.1:20490", inodes: []uint32{other}, want: true},
		"another pod's beside this one's":      {address: "127.0.0.1:20490", inodes: []uint32{inode, other}, own: "127.0.0.1:20490", want: true},
		"another pod's, this one on standby":   {address: "127.0.0.1:20490", inodes: []uint32{other}, own: "127.0.0.2:20490", want: true},
		"this pod's":                           {address: "127.0.0.1:20490", inodes: []uint32{inode}, own: "127.0.0.1:20490"},
		"a tunnel on standby":                  {address: "127.0.0.2:20490", inodes: []uint32{other}},
		"the HTTP address of another agent":    {address: "127.0.0.1:20488", inodes: []uint32{other}},
		"another pod's, this one was ready":    {address: "127.0.0.1:20490", inodes: []uint32{other}, ready: true},
		"unknown, as sockets cannot be listed": {err: errors.New("not permitted")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := &Agent{options: Options{
				Listening: func() (sockets.Listeners, error) {
					if tt.err != nil {
						return nil, tt.err
					}
					return sockets.Listeners{netip.MustParseAddrPort(tt.address): tt.inodes}, nil
				},
				Routing: routing.Settings{Reserved: []int{wellknown.AgentHTTPPort}},
				Log:     slog.New(slog.DiscardHandler),
			}}
			own, _ := netip.ParseAddrPort(tt.own) // the zero address without one
			a.status.Tunnels = map[string]tunnelspec.TunnelStatus{"fs-1": {Accept: own}}
			a.snapshot.Store(&snapshot{wasReady: tt.ready})
			a.observePredecessor(time.Now())
			if found := len(a.predecessor) > 0; found != tt.want {
				t.Errorf("got %v, want another pod: %v", a.predecessor, tt.want)
			}
		})
	}
}

// withPredecessor is the agent of a pod that has waited for its tunnels, beside a pod that listens on port 20490.
func withPredecessor(result *probe.Result) *Agent {
	a := &Agent{
		predecessor: map[netip.AddrPort]otherPort{loopback(20490): {result: result}},
		observed: observed{
			hasTable: true, planned: true, table: ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}}},
		},
	}
	a.status = tunnelspec.Status{PID: 1, Tunnels: map[string]tunnelspec.TunnelStatus{"fs-1": {Listening: true}}}
	return a
}

// serves has this pod run the tunnel with the result of its probe.
func (a *Agent) serves(result *probe.Result) {
	state := &tunnelState{Tunnel: routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: "fs-1"}, Port: 20490}, inForce: time.Now(), result: result, resultAt: time.Now()}
	a.tunnels = map[string]*tunnelState{"fs-1": state}
}

func TestPodIsNotReadyWhileOnlyThePredecessorServes(t *testing.T) {
	answered, failed := &probe.Result{}, &probe.Result{Err: context.DeadlineExceeded}
	stillOpen := &probe.Result{Err: context.DeadlineExceeded, Established: true}
	const serves = "the pod before this one serves "
	tests := map[string]struct {
		predecessor *probe.Result
		change      func(*Agent)
		want        string // "" for ready
	}{
		"this pod's tunnel fails": {answered, func(a *Agent) { a.serves(failed) }, serves + "fs-1, this one cannot: ProbeTimeout"},
		"it was not probed":       {answered, func(a *Agent) { a.serves(nil) }, serves + "fs-1, this one cannot: it is not healthy yet"},
		"the target is unusable": {answered, func(a *Agent) {
			a.plan.Unusable = []routing.UnusableTarget{{Name: "fs-1", Port: 20490, Reason: routing.NoAddress}}
		}, serves + "fs-1, this one cannot: NoAddress"},
		"the target has no certificate": {answered, func(*Agent) {}, serves + "fs-1, this one cannot: it has no tunnel yet"},
		"a used target left the table": {answered, func(a *Agent) {
			a.table, a.predecessor[loopback(20490)] = ports.Table{}, otherPort{answered, time.Now()}
		}, serves + "port 20490, this one cannot: no target of the table has the port"},
		"an unused target left the table": {answered, func(a *Agent) { a.table = ports.Table{} }, ""},
		"open connections are answered":   {stillOpen, func(a *Agent) { a.serves(failed) }, serves + "fs-1, this one cannot: ProbeTimeout"},
		"the predecessor was not probed":  {nil, func(a *Agent) { a.serves(failed) }, "not known yet whether the pod before this one serves what this one cannot: fs-1"},
		"both fail":                       {failed, func(a *Agent) { a.serves(failed) }, ""},
		"both serve":                      {answered, func(a *Agent) { a.serves(answered) }, ""},
		"only this pod serves":            {failed, func(a *Agent) { a.serves(answered) }, ""},
		"no predecessor, and none serves": {nil, func(a *Agent) { a.predecessor = nil; a.serves(failed) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := withPredecessor(tt.predecessor)
			tt.change(a)
			a.certificates = certificates.New(certificates.Options{})
			a.publish()
			got := ""
			if err := a.Ready(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPredecessorIsProbedWhereThisPodCannotServe(t *testing.T) {
	failed := &probe.Result{Err: context.DeadlineExceeded}
	for name, tt := range map[string]struct {
		own  *probe.Result
		wait time.Duration
		want int
	}{
		"this pod's tunnel fails":   {failed, 0, 1},
		"this pod waits for health": {failed, time.Hour, 0},
		"this pod's tunnel serves":  {&probe.Result{}, 0, 0},
	} {
		a := withPredecessor(nil)
		a.started, a.options.HealthWait = time.Now(), tt.wait
		a.serves(tt.own)
		tasks := a.predecessorTasks()
		if len(tasks) != tt.want {
			t.Errorf("%s: got tasks %+v, want %d", name, tasks, tt.want)
		}
		for _, task := range tasks {
			if !a.handlePredecessor(probe.Result{Name: task.Name, Accept: task.Accept, Late: true}) || a.predecessor[task.Accept].result != nil {
				t.Errorf("%s: a late result counts", name)
			}
			if !a.handlePredecessor(probe.Result{Name: task.Name, Accept: task.Accept}) || a.predecessor[task.Accept].result == nil {
				t.Errorf("%s: a result does not count", name)
			}
		}
	}
}

// Both pods would listen on the port of a target that comes into the table, and only one of them may serve it.
func TestNewTargetIsOnStandbyBesideAnotherPod(t *testing.T) {
	a := withPredecessor(nil)
	a.table.Targets["fs-2"] = ports.Target{Port: 20491}
	a.states = map[string]routing.State{"fs-1": {Port: 20490}}
	if standby := a.standby(); standby["fs-1"] || !standby["fs-2"] {
		t.Errorf("got %v, want fs-2", standby)
	}
	a.predecessor = nil
	if standby := a.standby(); standby["fs-2"] {
		t.Error("fs-2 is on standby, although there is no other pod")
	}
}
