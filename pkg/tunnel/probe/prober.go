package probe

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Times of a round. A server goes dark at worst right after a good probe; then the interval and
// both timeouts pass until that is certain: 14.5 s with the default interval.
const (
	firstTimeout   = 2 * time.Second
	confirmTimeout = 2500 * time.Millisecond
	// jitter is the part of the interval by which it is shortened at most.
	jitter = 0.1
	// renewAfter is the age at which a connection that is kept open gives way to a fresh one,
	// so that certificates and the way to the server are checked, too.
	renewAfter = 3 * time.Minute
)

// Task is one tunnel to watch.
type Task struct {
	Name    string
	Accept  netip.AddrPort   // the node's end
	Servers []netip.AddrPort // where it may lead to, in any order
	Peer    Peer             // what they must prove, and are shown
	// Watch are servers that are asked directly in each round, also while the tunnel is well:
	// old connections lead there, or all are to go back there.
	Watch []netip.AddrPort
}

// sameLine says whether a running prober can go on with its connection.
func (t Task) sameLine(other Task) bool { return t.Name == other.Name && t.Accept == other.Accept }

// Result is what a round found.
type Result struct {
	Name   string
	Accept netip.AddrPort
	Began  time.Time
	At     time.Time     // when it was known
	Took   time.Duration // from the last question to its answer
	// Err is why a new connection through the tunnel is of no use; nil while one is, or none
	// had to be tried.
	Err error
	// Established: an older connection is answered although no new one is.
	Established bool
	// Stuck: an older connection is silent although a new one is answered.
	Stuck bool
	// Direct are the servers that were asked directly: all of them when something was wrong,
	// those of Task.Watch otherwise.
	Direct map[netip.AddrPort]error
}

// prober watches one tunnel.
type prober struct {
	dialer   Dialer
	interval time.Duration
	report   func(context.Context, Result)
	kick     chan struct{} // holds one wish for a round at once

	mu   sync.Mutex
	task Task // guarded by mu
}

func (p *prober) current() Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.task
}

func (p *prober) change(task Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task = task
}

// hurry asks for a round at once.
func (p *prober) hurry() {
	select {
	case p.kick <- struct{}{}:
	default: // is asked for already
	}
}

// run probes until the context ends.
func (p *prober) run(ctx context.Context) {
	var kept *line
	defer func() { kept.close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-timer.C:
		}
		var result Result
		result, kept = p.round(ctx, kept)
		if ctx.Err() != nil {
			return // the end is no finding
		}
		p.report(ctx, result)
		timer.Reset(shortened(p.interval))
	}
}

func shortened(interval time.Duration) time.Duration {
	return interval - time.Duration(rand.Float64()*jitter*float64(interval))
}

// round asks over the connection that is kept open, and over a fresh one when there is none or
// it is old. Where an answer is missing it looks closer. The line it returns is the one to keep.
func (p *prober) round(ctx context.Context, kept *line) (Result, *line) {
	task := p.current()
	result := Result{Name: task.Name, Accept: task.Accept, Began: time.Now()}
	dial := func(ctx context.Context) (net.Conn, error) { return p.dialer.Tunnel(ctx, task.Accept) }
	old := make(chan answer, 1)
	go func() { old <- kept.null(ctx, firstTimeout+confirmTimeout) }() // ends by its timeout
	now, known := within(old, firstTimeout)
	if known && (now.err != nil || time.Since(kept.opened) >= renewAfter) {
		if fresh := open(ctx, dial, firstTimeout); fresh.err == nil {
			kept.close()
			now = fresh
		} else {
			known = false
			old <- now
		}
	}
	if known {
		result.Took = now.took
		result.Direct = p.direct(ctx, task.Peer, task.Watch)
		result.At = time.Now()
		return result, now.line
	}
	return p.doubt(ctx, task, dial, old, result)
}

func within(answers <-chan answer, timeout time.Duration) (answer, bool) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a, true
	case <-timer.C:
		return answer{}, false
	}
}

// doubt asks once more over a fresh connection, and meanwhile all servers directly, so that the
// cause is known in the same moment. The older connection has the same time.
func (p *prober) doubt(ctx context.Context, task Task, dial dialing, old <-chan answer, result Result) (Result, *line) {
	var asking sync.WaitGroup
	asking.Go(func() { result.Direct = p.direct(ctx, task.Peer, task.Servers) })
	fresh := open(ctx, dial, confirmTimeout)
	late := <-old
	asking.Wait()
	result.Took, result.Err, result.At = fresh.took, fresh.err, time.Now()
	result.Established = late.err == nil && fresh.err != nil
	result.Stuck = fresh.err == nil && Reason(late.err) == ReasonTimeout
	if fresh.err != nil {
		return result, late.line
	}
	late.line.close()
	return result, fresh.line
}

// direct asks servers without the tunnel, all at once.
func (p *prober) direct(ctx context.Context, peer Peer, servers []netip.AddrPort) map[netip.AddrPort]error {
	if len(servers) == 0 {
		return nil
	}
	errs := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() {
			found := open(ctx, func(ctx context.Context) (net.Conn, error) {
				return p.dialer.Server(ctx, server, peer)
			}, confirmTimeout)
			found.line.close()
			errs[i] = found.err
		})
	}
	asking.Wait()
	found := make(map[netip.AddrPort]error, len(servers))
	for i, server := range servers {
		found[server] = errs[i]
	}
	return found
}
