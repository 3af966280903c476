package probe

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

var (
	accept = netip.MustParseAddrPort("127.0.0.1:20490")
	one    = netip.MustParseAddrPort("10.0.0.4:2049")
	two    = netip.MustParseAddrPort("10.0.1.4:2049")
)

// behaviour is how a server at an address treats connections.
type behaviour int

const (
	answering behaviour = iota
	silent              // accepts, and answers nothing, also on old connections
	refusing
	refusingNew // answers on old connections
)

// fakeDialer connects to servers in memory.
type fakeDialer struct {
	mu           sync.Mutex
	behaviours   map[netip.AddrPort]behaviour // guarded by mu
	open         map[net.Conn]bool            // guarded by mu; ends of the servers
	silenced     map[net.Conn]bool            // guarded by mu
	held         map[net.Conn][]byte          // guarded by mu; the last reply of a silenced connection
	dialed       map[netip.AddrPort]int       // guarded by mu
	connectDelay time.Duration                // guarded by mu
}

func newFakeDialer() *fakeDialer {
	return &fakeDialer{
		behaviours: map[netip.AddrPort]behaviour{}, open: map[net.Conn]bool{}, silenced: map[net.Conn]bool{},
		held: map[net.Conn][]byte{}, dialed: map[netip.AddrPort]int{},
	}
}

func (d *fakeDialer) set(address netip.AddrPort, b behaviour) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behaviours[address] = b
}

// silence holds back replies on all open connections.
func (d *fakeDialer) silence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.silenced, d.open)
}

// unsilence sends replies again, including those held back.
func (d *fakeDialer) unsilence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.silenced)
	for conn, reply := range d.held {
		go func() { _, _ = conn.Write(reply) }() // it may be closed
	}
	clear(d.held)
}

func (d *fakeDialer) dials(address netip.AddrPort) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dialed[address]
}

func (d *fakeDialer) Tunnel(_ context.Context, address netip.AddrPort) (net.Conn, error) {
	d.mu.Lock()
	delay := d.connectDelay
	d.mu.Unlock()
	<-time.After(delay)
	return d.dial(address)
}

func (d *fakeDialer) Server(_ context.Context, address netip.AddrPort, _ Peer) (net.Conn, error) {
	return d.dial(address)
}

func (d *fakeDialer) dial(address netip.AddrPort) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dialed[address]++
	if b := d.behaviours[address]; b == refusing || b == refusingNew {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	d.open[server] = true
	go d.serve(address, server)
	return client, nil
}

// sends reports whether to send a reply now. It holds back that of a silenced connection.
func (d *fakeDialer) sends(address netip.AddrPort, conn net.Conn, reply []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silenced[conn] {
		d.held[conn] = reply
	}
	b := d.behaviours[address]
	return !d.silenced[conn] && (b == answering || b == refusingNew)
}

func (d *fakeDialer) serve(address netip.AddrPort, conn net.Conn) {
	defer d.close(conn)
	call := make([]byte, 44)
	for {
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		reply := replyTo(call)
		if !d.sends(address, conn, reply) {
			continue
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

func (d *fakeDialer) close(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	conn.Close()
	delete(d.open, conn)
}

// openConnections counts those that are open once all goroutines wait.
func (d *fakeDialer) openConnections() int {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

func unusedTask() Task {
	return Task{Name: "fs-1", Accept: accept, Servers: []netip.AddrPort{one, two}}
}

func usedTask() Task {
	task := unusedTask()
	task.InUse = true
	return task
}

// replyTo is a server's answer to a NULL call.
func replyTo(call []byte) []byte {
	reply := binary.BigEndian.AppendUint32(nil, 1<<31|24)
	reply = append(reply, call[4:8]...)
	reply = append(reply, 0, 0, 0, 1)
	return append(reply, make([]byte, 16)...)
}

// withManager tests a Manager of one unused tunnel in a synctest bubble.
func withManager(t *testing.T, test func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, results := newFakeDialer(), make(chan Result)
		ctx, cancel := context.WithCancel(t.Context())
		m := NewManager(d, 10*time.Second, func(ctx context.Context, r Result) {
			select {
			case results <- r:
			case <-ctx.Done():
			}
		})
		m.SetTasks(ctx, []Task{unusedTask()})
		test(t, d, m, results)
		cancel()
		m.Close()
	})
}

func TestConnectionStaysOpenUntilItsMaxAge(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, _ *Manager, results <-chan Result) {
		begin := time.Now()
		for range 15 {
			if r := <-results; r.Err != nil || r.Direct != nil {
				t.Errorf("got %+v", r)
			}
		}
		if d.dials(accept) != 1 || d.dials(one) != 0 {
			t.Errorf("%d connections through the tunnel and %d to the server", d.dials(accept), d.dials(one))
		}
		if took := time.Since(begin); took < 14*9*time.Second || took > 14*10*time.Second {
			t.Errorf("15 rounds took %s", took)
		}
		for range 10 {
			<-results
		}
		if d.dials(accept) != 2 {
			t.Errorf("%d connections after more than three minutes, want a new one", d.dials(accept))
		}
	})
}

func TestSilentServerIsDetectedInTime(t *testing.T) {
	tests := map[string]struct {
		task   Task
		within time.Duration
	}{
		"not in use": {unusedTask(), 14500 * time.Millisecond},
		"in use":     {usedTask(), 4500 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { testSilentServer(t, tt.task, tt.within) })
	}
}

func testSilentServer(t *testing.T, task Task, within time.Duration) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		m.SetTasks(t.Context(), []Task{task})
		<-results      // after the interval of before
		for range 20 { // for different jitter
			<-results
			begin := time.Now()
			d.set(accept, silent)
			d.set(one, silent)
			r := <-results
			if since := time.Since(begin); since > within || Reason(r.Err) != tunnelspec.ProbeTimeout {
				t.Errorf("after %s: %+v", since, r)
			}
			if Reason(r.Direct[one]) != tunnelspec.ProbeTimeout || r.Direct[two] != nil || len(r.Direct) != 2 {
				t.Errorf("servers: %v", r.Direct)
			}
			if r.Established || r.Stuck {
				t.Errorf("got %+v, want neither Established nor Stuck", r)
			}
			d.set(accept, answering)
			d.set(one, answering)
		}
	})
}

func TestStuckConnectionIsAwaitedAgain(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, _ *Manager, results <-chan Result) {
		<-results
		d.silence()
		for i := range 3 {
			if r := <-results; !r.Stuck || r.Err != nil || d.openConnections() != 2 {
				t.Errorf("round %d: got %+v, want an old connection stuck and new ones answered", i, r)
			}
		}
		if d.dials(accept) != 2 {
			t.Errorf("%d connections, want the stuck one and a new one", d.dials(accept))
		}
		d.unsilence()
		if r := <-results; r.Stuck || r.Err != nil || d.openConnections() != 1 {
			t.Errorf("got %+v with %d connections, want success and the stuck one closed", r, d.openConnections())
		}
	})
}

// TCP retransmits 6.2 s after it has sent a segment that a loss of 3 s or more takes.
func TestConnectionIsNotStuckAfterARetransmission(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		m.SetTasks(t.Context(), []Task{usedTask()})
		<-results
		d.silence()
		if r := <-results; !r.Stuck {
			t.Errorf("got %+v, want the old connection stuck", r)
		} else {
			retransmitted := time.NewTimer(time.Until(r.Began.Add(6200 * time.Millisecond)))
			go func() { <-retransmitted.C; d.unsilence() }()
		}
		if r := <-results; r.Stuck || r.Err != nil {
			t.Errorf("got %+v, want the old connection answered", r)
		}
	})
}

func TestTunnelThatComesIntoUseIsProbedAtOnce(t *testing.T) {
	withManager(t, func(t *testing.T, _ *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		begin := time.Now()
		m.SetTasks(t.Context(), []Task{usedTask()})
		<-results
		m.SetTasks(t.Context(), []Task{usedTask()})
		if since := time.Since(begin); since > 0 {
			t.Errorf("probed %s after it came into use", since)
		}
		for range 5 {
			<-results
		}
		if since := time.Since(begin); since < 9*time.Second || since > 10*time.Second {
			t.Errorf("5 rounds took %s, want one every 2 s at most", since)
		}
	})
}

func TestResultSaysWhetherTheTunnelWasProbed(t *testing.T) {
	withManager(t, func(t *testing.T, _ *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		direct := unusedTask()
		direct.DirectServer = one
		for _, task := range []Task{direct, usedTask()} {
			m.SetTasks(t.Context(), []Task{task})
			if r := <-results; r.ServerOnly != task.DirectServer.IsValid() {
				t.Errorf("got %+v for %+v", r, task)
			}
		}
	})
}

func TestEstablishedConnectionIsKeptWhileNewOnesFail(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, _ *Manager, results <-chan Result) {
		<-results
		d.set(accept, refusingNew)
		var r Result
		for r = range results {
			if r.Err != nil {
				break
			}
		}
		if !r.Established || r.Stuck || Reason(r.Err) != tunnelspec.ProbeRefused {
			t.Errorf("got %+v, want the old connection established and new ones refused", r)
		}
		if r = <-results; !r.Established {
			t.Errorf("got %+v: the old connection was closed", r)
		}
	})
}

func TestClosedConnectionIsReplacedWithoutError(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		d.mu.Lock()
		for conn := range d.open {
			conn.Close()
		}
		d.mu.Unlock()
		m.ProbeNow("fs-1")
		begin := time.Now()
		if r := <-results; r.Err != nil || r.Direct != nil {
			t.Errorf("got %+v, want success over a new connection", r)
		}
		if time.Since(begin) > time.Second {
			t.Error("ProbeNow did not start a round at once")
		}
	})
}

func TestServersInAlsoProbeAreProbedInEachRound(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		d.set(one, refusing)
		m.SetTasks(t.Context(), []Task{{Name: "fs-1", Accept: accept, Servers: []netip.AddrPort{one, two}, AlsoProbe: []netip.AddrPort{one}}})
		if r := <-results; len(r.Direct) != 1 || Reason(r.Direct[one]) != tunnelspec.ProbeRefused || r.Err != nil {
			t.Errorf("got %+v, want one server refused", r)
		}
		if d.dials(accept) != 1 {
			t.Error("the changed task closed the open connection")
		}
	})
}

func TestTunnelWithoutTaskIsNotProbed(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		m.SetTasks(t.Context(), nil)
		before := d.dials(accept)
		select {
		case r := <-results:
			t.Errorf("got %+v of a tunnel without task", r)
		case <-time.After(10 * time.Minute):
		}
		if d.dials(accept) != before {
			t.Error("it is still probed")
		}
	})
}
