package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Task is one tunnel to watch.
type Task struct {
	Name    string
	Accept  netip.AddrPort   // the node's end
	Servers []netip.AddrPort // where it may lead to, in any order
	Peer    Peer             // what they must prove, and are shown
	// InUse: volumes are mounted through the tunnel, so it is probed more often than others.
	InUse bool
	// Direct is the server that is asked without the tunnel, which nobody uses; the zero AddrPort
	// to ask through the tunnel.
	Direct netip.AddrPort
	// Watch are servers that are asked directly in each round, also while the tunnel is well:
	// old connections lead there, or all are to go back there.
	Watch []netip.AddrPort
}

// sameLine says whether a running prober can go on with its connection.
func (t Task) sameLine(other Task) bool {
	return t.Name == other.Name && t.Accept == other.Accept && t.Direct == other.Direct
}

// Result is what a round found.
type Result struct {
	Name   string
	Accept netip.AddrPort
	// Late: this process did not run when it had to, so nothing else of the round is told.
	Late  bool
	Began time.Time
	At    time.Time     // when it was known
	Took  time.Duration // from the last question to its answer
	// Err is why a new connection through the tunnel is of no use; nil while one is, or none
	// had to be tried.
	Err error
	// Established: an older connection is answered although no new one is.
	Established bool
	// Stuck: an older connection is silent although a new one is answered. It is asked again
	// in the next round, and Stuck again if it stays silent.
	Stuck bool
	// Lines are the connections through the tunnel that the prober keeps open.
	Lines int
	// Direct are the servers that were asked directly: all of them when something was wrong,
	// those of Task.Watch otherwise.
	Direct map[netip.AddrPort]error
}

// prober watches one tunnel.
type prober struct {
	dialer   Dialer
	interval time.Duration
	lateness func(func()) time.Duration
	report   func(context.Context, Result)
	kick     chan struct{} // holds one request for a round at once

	mu   sync.Mutex
	task Task // guarded by mu
}

func (p *prober) current() Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.task
}

// change has a tunnel that begins to be used probed at once.
func (p *prober) change(task Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if task.InUse && !p.task.InUse {
		p.hurry()
	}
	p.task = task
}

// hurry requests a round at once.
func (p *prober) hurry() {
	select {
	case p.kick <- struct{}{}:
	default: // is requested already
	}
}

// run probes until the context ends.
func (p *prober) run(ctx context.Context) {
	var open lines
	defer func() { open.close() }()
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		late := time.Duration(0)
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-timer.C:
			late = time.Since(due)
		}
		task := p.current()
		var result Result
		result, open = p.probe(ctx, task, open, late)
		if ctx.Err() != nil {
			return // the end of the watch is no finding
		}
		p.report(ctx, result)
		wait := shortened(timingOf(task, p.interval).interval)
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// probe does one round. One that was late keeps its connections and tells nothing: what looks
// like a silent server may be this process, which did not run.
func (p *prober) probe(ctx context.Context, task Task, open lines, late time.Duration) (Result, lines) {
	r := &round{dialer: p.dialer, task: task, timing: timingOf(task, p.interval)}
	var result Result
	late = max(late, p.lateness(func() { result, open = r.run(ctx, open) }))
	if late > maxLateness || r.connect > maxConnect {
		result = Result{Name: task.Name, Accept: task.Accept, Late: true}
	}
	result.Lines = open.count()
	return result, open
}

// jitter is the part of the interval by which it is shortened at most.
const jitter = 0.1

func shortened(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*jitter*float64(interval))
}
