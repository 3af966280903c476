package probe

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	accept = netip.MustParseAddrPort("127.0.0.1:20490")
	one    = netip.MustParseAddrPort("10.0.0.4:2049")
	two    = netip.MustParseAddrPort("10.0.1.4:2049")
)

// behaviour is what an address does with connections.
type behaviour int

const (
	answering behaviour = iota
	silent              // accepts and says nothing, on old connections, too
	refusing
	noneNew // old connections work, new ones are refused
)

// network is a Dialer without a network.
type network struct {
	mu     sync.Mutex
	does   map[netip.AddrPort]behaviour // guarded by mu
	lost   map[net.Conn]bool            // guarded by mu; connections that are silent
	held   map[net.Conn][]byte          // guarded by mu; answers that they owe
	open   []net.Conn                   // guarded by mu
	dialed map[netip.AddrPort]int       // guarded by mu
	slow   time.Duration                // guarded by mu; what a connect takes
}

func newNetwork() *network {
	return &network{
		does: map[netip.AddrPort]behaviour{}, lost: map[net.Conn]bool{}, held: map[net.Conn][]byte{},
		dialed: map[netip.AddrPort]int{},
	}
}

func (n *network) set(address netip.AddrPort, b behaviour) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.does[address] = b
}

// lose has all open connections say nothing any more.
func (n *network) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.open {
		n.lost[conn] = true
	}
}

// regain has them answer, also what they were asked meanwhile.
func (n *network) regain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.lost)
	for conn, reply := range n.held {
		go func() { _, _ = conn.Write(reply) }() // it may be closed
	}
	clear(n.held)
}

func (n *network) dials(address netip.AddrPort) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialed[address]
}

func (n *network) Tunnel(_ context.Context, address netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	<-time.After(slow)
	return n.dial(address)
}

func (n *network) Server(_ context.Context, address netip.AddrPort, _ Peer) (net.Conn, error) {
	return n.dial(address)
}

func (n *network) dial(address netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialed[address]++
	if b := n.does[address]; b == refusing || b == noneNew {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	n.open = append(n.open, server)
	go n.serve(address, server)
	return client, nil
}

// says keeps the answer back that is not to be given now.
func (n *network) says(address netip.AddrPort, conn net.Conn, reply []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost[conn] {
		n.held[conn] = reply
	}
	b := n.does[address]
	return !n.lost[conn] && (b == answering || b == noneNew)
}

func (n *network) serve(address netip.AddrPort, conn net.Conn) {
	defer conn.Close()
	call := make([]byte, 44)
	for {
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		reply := replyTo(call)
		if !n.says(address, conn, reply) {
			continue
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// idle is a tunnel that volumes do not use, used is one that they do.
func idle() Task {
	return Task{Name: "fs-1", Accept: accept, Servers: []netip.AddrPort{one, two}}
}

func used() Task {
	task := idle()
	task.InUse = true
	return task
}

// replyTo is a server's answer to a NULL call.
func replyTo(call []byte) []byte {
	reply := binary.BigEndian.AppendUint32(nil, lastFragment|24)
	reply = append(reply, call[4:8]...)
	reply = append(reply, 0, 0, 0, 1)
	return append(reply, make([]byte, 16)...)
}

// watched runs a fleet of one tunnel in a bubble, and gives its results.
func watched(t *testing.T, test func(t *testing.T, n *network, f *Fleet, results <-chan Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, results := newNetwork(), make(chan Result)
		ctx, cancel := context.WithCancel(t.Context())
		f := NewFleet(n, 10*time.Second, func(ctx context.Context, r Result) {
			select {
			case results <- r:
			case <-ctx.Done():
			}
		})
		f.Watch(ctx, []Task{idle()})
		test(t, n, f, results)
		cancel()
		f.Close()
	})
}

func TestOneConnectionIsKept(t *testing.T) {
	watched(t, func(t *testing.T, n *network, _ *Fleet, results <-chan Result) {
		begin := time.Now()
		for range 15 {
			if r := <-results; r.Err != nil || r.Direct != nil {
				t.Errorf("got %+v", r)
			}
		}
		if n.dials(accept) != 1 || n.dials(one) != 0 {
			t.Errorf("%d connections through the tunnel and %d to the server", n.dials(accept), n.dials(one))
		}
		if took := time.Since(begin); took < 14*9*time.Second || took > 14*10*time.Second {
			t.Errorf("15 rounds took %s", took)
		}
		for range 10 {
			<-results
		}
		if n.dials(accept) != 2 {
			t.Errorf("%d connections after more than three minutes, want a fresh one", n.dials(accept))
		}
	})
}

func TestSilentServerIsFound(t *testing.T) {
	tests := map[string]struct {
		task   Task
		within time.Duration
	}{
		"not in use": {idle(), 14500 * time.Millisecond},
		"in use":     {used(), 4500 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { testSilentServerIsFound(t, tt.task, tt.within) })
	}
}

func testSilentServerIsFound(t *testing.T, task Task, within time.Duration) {
	watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
		<-results
		f.Watch(t.Context(), []Task{task})
		<-results      // at the pace of before
		for range 20 { // wherever in the interval chance puts it
			<-results
			dark := time.Now()
			n.set(accept, silent)
			n.set(one, silent)
			r := <-results
			if since := time.Since(dark); since > within || Reason(r.Err) != ReasonTimeout {
				t.Errorf("after %s: %+v", since, r)
			}
			if Reason(r.Direct[one]) != ReasonTimeout || r.Direct[two] != nil || len(r.Direct) != 2 {
				t.Errorf("servers: %v", r.Direct)
			}
			if r.Established || r.Stuck {
				t.Errorf("got %+v, want no word of older connections", r)
			}
			n.set(accept, answering)
			n.set(one, answering)
		}
	})
}

func TestSilentConnectionIsAskedAgain(t *testing.T) {
	watched(t, func(t *testing.T, n *network, _ *Fleet, results <-chan Result) {
		<-results
		n.lose()
		for i := range 3 {
			if r := <-results; !r.Stuck || r.Err != nil || r.Lines != 2 {
				t.Errorf("round %d: got %+v, want an old connection stuck and new ones well", i, r)
			}
		}
		if n.dials(accept) != 2 {
			t.Errorf("%d connections, want the silent one and a fresh one", n.dials(accept))
		}
		n.regain()
		if r := <-results; r.Stuck || r.Err != nil || r.Lines != 1 {
			t.Errorf("got %+v, want all well again", r)
		}
	})
}

// TCP retransmits 6.2 s after it has sent what a loss of 3 s or more takes.
func TestLostSegmentIsWaitedFor(t *testing.T) {
	watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
		<-results
		f.Watch(t.Context(), []Task{used()})
		<-results
		n.lose()
		if r := <-results; !r.Stuck {
			t.Errorf("got %+v, want the old connection silent", r)
		} else {
			retransmitted := time.NewTimer(time.Until(r.Began.Add(6200 * time.Millisecond)))
			go func() { <-retransmitted.C; n.regain() }()
		}
		if r := <-results; r.Stuck || r.Err != nil {
			t.Errorf("got %+v, want the old connection answered", r)
		}
	})
}

func TestTunnelThatBeginsToBeUsedIsProbedAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, _ *network, f *Fleet, results <-chan Result) {
		<-results
		begin := time.Now()
		f.Watch(t.Context(), []Task{used()})
		<-results
		f.Watch(t.Context(), []Task{used()})
		if since := time.Since(begin); since > 0 {
			t.Errorf("probed %s after it began to be used", since)
		}
		for range 5 {
			<-results
		}
		if since := time.Since(begin); since < 9*time.Second || since > 10*time.Second {
			t.Errorf("5 rounds took %s, want one every 2 s at most", since)
		}
	})
}

func TestOldConnectionsOutliveNewOnes(t *testing.T) {
	watched(t, func(t *testing.T, n *network, _ *Fleet, results <-chan Result) {
		<-results
		n.set(accept, noneNew)
		var r Result
		for r = range results {
			if r.Err != nil {
				break
			}
		}
		if !r.Established || r.Stuck || Reason(r.Err) != ReasonRefused {
			t.Errorf("got %+v, want the old connection established and new ones refused", r)
		}
		if r = <-results; !r.Established {
			t.Errorf("got %+v: the old connection was given up", r)
		}
	})
}

func TestRestartOfTheTunnelIsNoTrouble(t *testing.T) {
	watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
		<-results
		n.mu.Lock()
		for _, conn := range n.open {
			conn.Close()
		}
		n.mu.Unlock()
		f.Hurry("fs-1")
		begin := time.Now()
		if r := <-results; r.Err != nil || r.Direct != nil {
			t.Errorf("got %+v, want all well over a fresh connection", r)
		}
		if time.Since(begin) > time.Second {
			t.Error("it did not hurry")
		}
	})
}

func TestWatchedServersAreAskedEachTime(t *testing.T) {
	watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
		<-results
		n.set(one, refusing)
		f.Watch(t.Context(), []Task{{Name: "fs-1", Accept: accept, Servers: []netip.AddrPort{one, two}, Watch: []netip.AddrPort{one}}})
		if r := <-results; len(r.Direct) != 1 || Reason(r.Direct[one]) != ReasonRefused || r.Err != nil {
			t.Errorf("got %+v, want the watched server refused", r)
		}
		if n.dials(accept) != 1 {
			t.Error("a change of what is watched cost the open connection")
		}
	})
}

func TestTunnelsThatLeaveAreNotProbed(t *testing.T) {
	watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
		<-results
		f.Watch(t.Context(), nil)
		before := n.dials(accept)
		select {
		case r := <-results:
			t.Errorf("got %+v of a tunnel that is not watched", r)
		case <-time.After(10 * time.Minute):
		}
		if n.dials(accept) != before {
			t.Error("it was probed on")
		}
	})
}
