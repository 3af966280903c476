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

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const (
	// pauseRounds is the number of measurements of each fault.
	pauseRounds = 5
	// reconnectDelay is that of the kernel's NFS client: the shortest time between two connects, and
	// the delay after a refused one.
	reconnectDelay  = 3 * time.Second
	requestInterval = time.Millisecond
	// faultInterval is the time between two faults: longer than reconnectDelay, and than the age of
	// 5 s from which a death of stunnel counts as the first in a row.
	faultInterval = 6 * time.Second
)

// nfsClient behaves as the kernel's NFS client: it reconnects as soon as the connection ends, but
// not before reconnectDelay has passed since the last connect. It sends requests all the time.
type nfsClient struct {
	address netip.AddrPort
	end     func()

	mu        sync.Mutex
	answered  time.Time     // guarded by mu; of the last answer
	connected time.Time     // guarded by mu; start of the last connect
	longest   time.Duration // guarded by mu; between two answers
	refused   int           // guarded by mu
}

func (h *harness) newNFSClient(address netip.AddrPort) *nfsClient {
	c := &nfsClient{address: address}
	ctx, cancel := context.WithCancel(h.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			c.connect(ctx)
			wait(ctx, time.Until(c.connectedAt().Add(reconnectDelay)))
		}
	})
	c.end = func() {
		cancel()
		running.Wait()
	}
	h.Cleanup(c.end)
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
		wait(ctx, requestInterval)
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

// pause returns the longest time without an answer since the last call.
func (c *nfsClient) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.longest
	c.longest = 0
	return longest
}

// waitAnswered waits for an answer on a connection of at least an age.
func (h *harness) waitAnswered(c *nfsClient, age time.Duration) {
	h.Helper()
	began := time.Now()
	h.poll("the client gets an answer", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answered.After(began) && time.Since(c.connected) > age
	}, func() any { return nil })
}

// measurePauses logs the pauses of a client during repeated faults.
func (h *harness) measurePauses(what string, c *nfsClient, fault func(round int)) {
	h.Helper()
	pauses := make([]time.Duration, pauseRounds)
	for i := range pauses {
		h.waitAnswered(c, faultInterval)
		c.pause()
		fault(i)
		h.waitAnswered(c, 0)
		pauses[i] = c.pause().Round(time.Millisecond)
	}
	h.Logf("%s: %v without an answer", what, pauses)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused > 0 {
		h.Errorf("%s: %d connects were refused", what, c.refused)
	}
}

// TestPauses measures the pauses of an NFS client. They depend on the machine, so the test checks
// only that no connection is refused.
func TestPauses(t *testing.T) {
	stunneltest.SkipUnlessLong(t)
	t.Run("stunnel", pausesOfStunnel)
	t.Run("hand-overs", pausesOfHandOvers)
	t.Run("supervisor", pausesOfTheSupervisor)
}

func (h *harness) startClient() (tunnelspec.Tunnel, *nfsClient) {
	h.Helper()
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	h.waitServing("fs-1", h.writeSpec(tunnel))
	return tunnel, h.newNFSClient(tunnel.Accept)
}

func pausesOfStunnel(t *testing.T) {
	h := newHarness(t)
	h.startSupervisor()
	tunnel, c := h.startClient()
	defer c.end() // otherwise the shutdown of the supervisor waits for it
	h.measurePauses("nothing happens", c, func(int) {})
	h.measurePauses("stunnel is killed", c, func(int) { h.killStunnel("fs-1") })
	server := tunnel.Connect[0]
	h.measurePauses("stunnel reloads its configuration", c, func(round int) {
		tunnel.Connect = []netip.AddrPort{server, server}[:1+(round+1)%2]
		h.waitServing("fs-1", h.writeSpec(tunnel))
	})
	h.measurePauses("stunnel is restarted", c, func(int) {
		tunnel.Restart++
		h.waitServing("fs-1", h.writeSpec(tunnel))
	})
}

func pausesOfHandOvers(t *testing.T) {
	h := newHarness(t)
	h.startSupervisor()
	tunnel, c := h.startClient()
	defer c.end() // otherwise the shutdown of the supervisor waits for it
	old := h
	h.measurePauses("another supervisor takes over", c, func(int) {
		next := newHarness(t)
		next.authority = h.authority
		generation := next.writeSpec(tunnel)
		next.startSupervisor()
		next.waitServing("fs-1", generation)
		old.stopSupervisor()
		old = next
	})
}

func pausesOfTheSupervisor(t *testing.T) {
	h := newHarness(t)
	defer h.startStore()()
	supervisor := h.startSupervisorProcess()
	_, c := h.startClient()
	defer c.end()
	h.measurePauses("the supervisor is killed, and another one starts", c, func(int) {
		h.poll("the socket is stored", func() bool { return h.storedSockets() == 1 }, func() any { return h.storedSockets() })
		if err := supervisor.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = supervisor.Wait() // killed
		supervisor = h.startSupervisorProcess()
	})
}
