package probe

import (
	"context"
	"errors"
	"net"
	"time"
)

// connection stays open between probes: a probe over it costs the server no TLS handshake, and shows
// whether connections as old as those of the NFS client still work.
type connection struct {
	conn   net.Conn
	opened time.Time
	xid    uint32
}

type dialFunc func(ctx context.Context) (net.Conn, error)

// callResult is the result of one NULL call.
type callResult struct {
	conn *connection // nil when there is none that can be used again
	err  error
	took time.Duration
}

// dialAndCall does a NULL call over a new connection.
func dialAndCall(ctx context.Context, dial dialFunc, timeout time.Duration) callResult {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	conn, err := dial(ctx)
	if err != nil {
		return callResult{err: withContextError(ctx, err), took: time.Since(begin)}
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
	if err := Null(ctx, c.conn, c.xid); err != nil {
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

// startCall starts a NULL call.
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
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case result := <-p.result:
		return result, true
	case <-timer.C:
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
