package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

// Times of a round. At worst a server stops answering right after a probe; then the interval and both
// timeouts pass until the round ends: 4.5 s for a tunnel in use, which leaves 1.5 s of the 6 s in
// which it is to fail over; 14.5 s for another tunnel with the default interval.
const (
	firstTimeout   = 2 * time.Second
	confirmTimeout = 2500 * time.Millisecond

	usedInterval       = 2 * time.Second
	usedFirstTimeout   = time.Second
	usedConfirmTimeout = 1500 * time.Millisecond

	// maxAge is the age at which the open connection is replaced, so that the server's certificate and
	// new connections are checked, too.
	maxAge = 3 * time.Minute
)

// timing is how often a tunnel is probed, and how long each call may take.
type timing struct {
	interval       time.Duration
	first, confirm time.Duration
}

func timingOf(task Task, interval time.Duration) timing {
	if task.InUse {
		return timing{min(interval, usedInterval), usedFirstTimeout, usedConfirmTimeout}
	}
	return timing{interval, firstTimeout, confirmTimeout}
}

// connections are those through a tunnel that stay open between rounds.
type connections struct {
	current *connection // nil for none
	// stuck is a call over an older connection that was not answered in the last round, although a new
	// connection was; nil for none. It may be answered yet: after a loss of three seconds, TCP sends
	// again at the sixth.
	stuck *pendingCall
}

func (c connections) close() {
	c.current.close()
	c.stuck.abandon()
}

// round probes a tunnel once.
type round struct {
	timing

	dialer  Dialer
	task    Task
	connect time.Duration // the longest time that connecting to the tunnel's local address took
}

func (r *round) dial(ctx context.Context) (net.Conn, error) {
	if r.task.DirectServer.IsValid() {
		return r.dialer.Server(ctx, r.task.DirectServer, r.task.Peer)
	}
	began := time.Now()
	conn, err := r.dialer.Tunnel(ctx, r.task.Accept)
	if err == nil {
		r.connect = max(r.connect, time.Since(began))
	}
	return conn, err
}

// run probes over the open connection, and over a new one if there is none, if it is old or if the task
// demands one. If neither is answered, it confirms the failure. It returns the connections for the next round.
func (r *round) run(ctx context.Context, open connections) (Result, connections) {
	result := Result{Name: r.task.Name, Accept: r.task.Accept, ServerOnly: r.task.DirectServer.IsValid(), Began: time.Now()}
	pending := open.current.startCall(ctx)
	called, answered := pending.wait(r.first)
	if answered && (called.err != nil || r.task.Renew || time.Since(open.current.opened) >= maxAge) {
		if fresh := dialAndCall(ctx, r.dial, r.first); fresh.err == nil {
			open.current.close()
			called = fresh
		} else {
			answered = false
			pending.result <- called
		}
	}
	if !answered {
		open.stuck.abandon()
		return r.confirmFailure(ctx, pending, result)
	}
	result.Took = called.took
	result.Direct = r.direct(ctx, r.task.AlsoProbe)
	result.Stuck = open.stuck.timesOut(r.first + r.confirm)
	result.At = time.Now()
	if !result.Stuck {
		open.stuck = nil
	}
	return result, connections{called.conn, open.stuck}
}

// confirmFailure probes over a new connection and, at the same time, all servers directly, to
// distinguish a failure of the tunnel from one of a server. The pending call has the same timeout.
func (r *round) confirmFailure(ctx context.Context, pending *pendingCall, result Result) (Result, connections) {
	var probes sync.WaitGroup
	probes.Go(func() { result.Direct = r.direct(ctx, r.task.Servers) })
	deadline := time.Now().Add(r.confirm)
	fresh := dialAndCall(ctx, r.dial, r.confirm)
	late, answered := pending.wait(time.Until(deadline))
	probes.Wait()
	result.Took, result.Err, result.At = fresh.took, fresh.err, time.Now()
	result.Established = fresh.err != nil && answered && late.err == nil
	result.Stuck = fresh.err == nil && !answered
	switch {
	case result.Stuck:
		return result, connections{fresh.conn, pending}
	case !answered:
		pending.abandon()
	case fresh.err == nil:
		late.conn.close()
	default:
		return result, connections{current: late.conn}
	}
	return result, connections{current: fresh.conn}
}

// direct probes servers without the tunnel, all at once.
func (r *round) direct(ctx context.Context, servers []netip.AddrPort) map[netip.AddrPort]error {
	if len(servers) == 0 {
		return nil
	}
	results := make(map[netip.AddrPort]error, len(servers))
	var mu sync.Mutex // of results
	var probes sync.WaitGroup
	for _, server := range servers {
		probes.Go(func() {
			result := dialAndCall(ctx, func(ctx context.Context) (net.Conn, error) {
				return r.dialer.Server(ctx, server, r.task.Peer)
			}, r.confirm)
			result.conn.close()
			mu.Lock()
			defer mu.Unlock()
			results[server] = result.err
		})
	}
	probes.Wait()
	return results
}

// connection stays open between probes: a probe over it costs the server no TLS handshake, and shows
// whether connections as old as those of the NFS client still work.
type connection struct {
	conn   net.Conn
	opened time.Time
	xid    uint32
}

// callResult is the result of one NULL call.
type callResult struct {
	conn *connection // nil when there is none that can be used again
	err  error
	took time.Duration
}

func dialAndCall(ctx context.Context, dial func(context.Context) (net.Conn, error), timeout time.Duration) callResult {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	conn, err := dial(ctx)
	if err != nil {
		return callResult{err: nfsnull.WithContextError(ctx, err), took: time.Since(begin)}
	}
	c := &connection{conn: conn, opened: begin}
	return c.call(ctx)
}

// call does a NULL call, and closes the connection if the call fails.
func (c *connection) call(ctx context.Context) callResult {
	if c == nil {
		return callResult{err: errors.New("no open connection")}
	}
	begin := time.Now()
	c.xid++
	if err := nfsnull.Call(ctx, c.conn, c.xid); err != nil {
		c.close()
		return callResult{err: err, took: time.Since(begin)}
	}
	return callResult{conn: c, took: time.Since(begin)}
}

func (c *connection) close() {
	if c != nil {
		c.conn.Close()
	}
}

// pendingCall is a NULL call without a timeout, which may be awaited in more than one round.
type pendingCall struct {
	result chan callResult // buffered
	cancel context.CancelFunc
}

func (c *connection) startCall(ctx context.Context) *pendingCall {
	ctx, cancel := context.WithCancel(ctx)
	p := &pendingCall{make(chan callResult, 1), cancel}
	go func() { // ends with the reply or the context
		defer cancel()
		p.result <- c.call(ctx)
	}()
	return p
}

// wait returns false if there is no result within the timeout. A result that is there counts even if
// the timeout has passed, since this process may not have run meanwhile.
func (p *pendingCall) wait(timeout time.Duration) (callResult, bool) {
	select {
	case result := <-p.result:
		return result, true
	case <-time.After(timeout):
	}
	select {
	case result := <-p.result:
		return result, true
	default:
		return callResult{}, false
	}
}

// timesOut waits for the result of a call of an earlier round. It closes the connection if there is
// a result.
func (p *pendingCall) timesOut(timeout time.Duration) bool {
	if p == nil {
		return false
	}
	result, answered := p.wait(timeout)
	result.conn.close()
	return !answered
}

// abandon cancels a call whose result was not received, and closes its connection.
func (p *pendingCall) abandon() {
	if p == nil {
		return
	}
	p.cancel()
	result := <-p.result
	result.conn.close()
}
