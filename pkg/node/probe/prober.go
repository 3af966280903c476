package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Task is a tunnel to probe.
type Task struct {
	Name    string
	Accept  netip.AddrPort   // the tunnel's local address
	Servers []netip.AddrPort // all mount targets of the tunnel, in any order
	Peer    Peer
	InUse   bool // volumes are mounted through the tunnel, so it is probed more often than others
	// Renew: each round needs a new connection, because an open one of this process says nothing about
	// clients, which have none or could not open another.
	Renew bool
	// DirectServer is probed instead of the tunnel if it is valid. A probe through an unused tunnel
	// would keep its stunnel running.
	DirectServer netip.AddrPort
	// AlsoProbe are servers that are probed directly in each round, also while the tunnel is healthy,
	// because open connections use them or the tunnel may return to them.
	AlsoProbe []netip.AddrPort
}

// sameAddresses reports whether connections of one task can be used for the other.
func (t Task) sameAddresses(other Task) bool {
	return t.Name == other.Name && t.Accept == other.Accept && t.DirectServer == other.DirectServer
}

// Result is the result of one round of probes.
type Result struct {
	Name   string
	Accept netip.AddrPort
	Late   bool // this process did not run in time, so the fields below have no value
	// ServerOnly: the server was probed instead of the tunnel, as Task.DirectServer requests.
	ServerOnly bool
	Began      time.Time
	At         time.Time     // the end of the round
	Took       time.Duration // of the last call
	// Err is why a new connection through the tunnel failed; nil if it was answered, or if the open
	// connection was, so that no new one was needed.
	Err         error
	Established bool // an older connection is answered although new ones fail
	// Stuck: an older connection times out although a new one is answered. The next round waits for
	// the same call again, and is Stuck as well if that is not answered.
	Stuck bool
	// Direct are the results of direct probes: of all servers when the tunnel failed, else of those in
	// Task.AlsoProbe.
	Direct map[netip.AddrPort]error
}

// settings are the same for all tunnels.
type settings struct {
	dialer   Dialer
	interval time.Duration
	lateness func(func()) time.Duration
	report   func(context.Context, Result)
}

// prober probes one tunnel.
type prober struct {
	settings

	now  chan struct{} // holds one request for a round at once
	stop context.CancelFunc

	mu   sync.Mutex
	task Task // guarded by mu
}

func (p *prober) current() Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.task
}

// change sets the task. A tunnel that comes into use is probed at once.
func (p *prober) change(task Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if task.InUse && !p.task.InUse {
		p.probeNow()
	}
	p.task = task
}

func (p *prober) probeNow() {
	select {
	case p.now <- struct{}{}:
	default: // requested already
	}
}

// run probes until the context ends.
func (p *prober) run(ctx context.Context) {
	var open connections
	defer func() { open.close() }()
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		late := time.Duration(0)
		select {
		case <-ctx.Done():
			return
		case <-p.now:
		case <-timer.C:
			late = time.Since(due)
		}
		task := p.current()
		var result Result
		result, open = p.probe(ctx, task, open, late)
		if ctx.Err() != nil {
			return // the round was canceled
		}
		p.report(ctx, result)
		wait := withJitter(timingOf(task, p.interval).interval)
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// probe does one round. A late round keeps its connections and discards its result: a timeout may be
// that of this process, which did not run, and not of the server.
func (p *prober) probe(ctx context.Context, task Task, open connections, late time.Duration) (Result, connections) {
	r := &round{dialer: p.dialer, task: task, timing: timingOf(task, p.interval)}
	var result Result
	late = max(late, p.lateness(func() { result, open = r.run(ctx, open) }))
	if late > maxLateness || r.connect > maxConnect {
		result = Result{Name: task.Name, Accept: task.Accept, Late: true}
	}
	return result, open
}

// jitter is the part of an interval by which it is shortened at most.
const jitter = 0.1

func withJitter(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*jitter*float64(interval))
}
