package supervise_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
)

const (
	// pauseRounds is how often each fault is measured.
	pauseRounds = 5
	// nfsDelay is the kernel's client's: the least time between two connects, and that after a
	// refused one.
	nfsDelay = 3 * time.Second
	askDelay = time.Millisecond
	// quietTime is between two faults: more than nfsDelay, and than the 5 s after which the
	// supervisor takes a death for the first one and starts stunnel at once.
	quietTime = 6 * time.Second
)

// nfsClient is connected as the kernel's NFS client is: it connects anew as soon as a connection
// ends, nfsDelay after the last connect at the soonest, and asks all the time.
type nfsClient struct {
	address netip.AddrPort
	end     func()

	mu        sync.Mutex
	answered  time.Time     // guarded by mu; last
	connected time.Time     // guarded by mu; when the connection was begun
	longest   time.Duration // guarded by mu; between two answers
	refused   int           // guarded by mu
}

func (w *world) nfsClient(address netip.AddrPort) *nfsClient {
	c := &nfsClient{address: address}
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			c.connect(ctx)
			wait(ctx, time.Until(c.connectedAt().Add(nfsDelay)))
		}
	})
	c.end = func() {
		cancel()
		running.Wait()
	}
	w.Cleanup(c.end)
	return c
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c *nfsClient) connect(ctx context.Context) {
	c.mu.Lock()
	c.connected = time.Now()
	c.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.address.String())
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if errors.Is(err, syscall.ECONNREFUSED) {
			c.refused++
		}
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for roundTrip(conn, "x") == nil {
		c.answer()
		wait(ctx, askDelay)
	}
}

func (c *nfsClient) answer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.answered.IsZero() {
		c.longest = max(c.longest, now.Sub(c.answered))
	}
	c.answered = now
}

func (c *nfsClient) connectedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected
}

// pause is the longest time without an answer since it was asked for last.
func (c *nfsClient) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.longest
	c.longest = 0
	return longest
}

// isAnswered waits for an answer on a connection that is at least so old.
func (w *world) isAnswered(c *nfsClient, age time.Duration) {
	w.Helper()
	began := time.Now()
	w.poll("the client is answered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answered.After(began) && time.Since(c.connected) > age
	}, func() any { return nil })
}

// measure logs what a fault, repeated, costs a client.
func (w *world) measure(what string, c *nfsClient, fault func(round int)) {
	w.Helper()
	pauses := make([]time.Duration, pauseRounds)
	for i := range pauses {
		w.isAnswered(c, quietTime)
		c.pause()
		fault(i)
		w.isAnswered(c, 0)
		pauses[i] = c.pause().Round(time.Millisecond)
	}
	w.Logf("%s: %v without an answer", what, pauses)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused > 0 {
		w.Errorf("%s: %d connects were refused", what, c.refused)
	}
}

// TestPauses measures what an NFS client of a tunnel notices. The figures depend on the machine; that
// no connection is refused does not.
func TestPauses(t *testing.T) {
	stunneltest.Long(t)
	t.Run("of stunnel", pausesOfStunnel)
	t.Run("of hand-overs", pausesOfHandOvers)
	t.Run("of the supervisor", pausesOfTheSupervisor)
}

func (w *world) served() (spec.Tunnel, *nfsClient) {
	w.Helper()
	tunnel := w.tunnel("fs-1", w.server().Address)
	w.serving("fs-1", w.write(tunnel))
	return tunnel, w.nfsClient(tunnel.Accept)
}

func pausesOfStunnel(t *testing.T) {
	w := newWorld(t)
	w.supervise()
	tunnel, c := w.served()
	defer c.end() // or a supervisor that ends would go on serving it
	w.measure("nothing happens", c, func(int) {})
	w.measure("stunnel is killed", c, func(int) { w.kill("fs-1") })
	server := tunnel.Connect[0]
	w.measure("stunnel reloads its configuration", c, func(round int) {
		tunnel.Connect = []netip.AddrPort{server, server}[:1+(round+1)%2]
		w.serving("fs-1", w.write(tunnel))
	})
	w.measure("stunnel is restarted", c, func(int) {
		tunnel.Restart++
		w.serving("fs-1", w.write(tunnel))
	})
}

func pausesOfHandOvers(t *testing.T) {
	w := newWorld(t)
	w.supervise()
	tunnel, c := w.served()
	defer c.end() // or a supervisor that ends would go on serving it
	old := w
	w.measure("another supervisor takes over", c, func(int) {
		next := newWorld(t)
		next.authority = w.authority
		generation := next.write(tunnel)
		next.supervise()
		next.serving("fs-1", generation)
		old.end()
		old = next
	})
}

func pausesOfTheSupervisor(t *testing.T) {
	w := newWorld(t)
	defer w.store()()
	supervisor := w.superviseApart()
	_, c := w.served()
	defer c.end()
	w.measure("the supervisor is killed, and another one starts", c, func(int) {
		w.poll("the socket is kept", func() bool { return w.kept() == 1 }, func() any { return w.kept() })
		if err := supervisor.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = supervisor.Wait() // killed
		supervisor = w.superviseApart()
	})
}
