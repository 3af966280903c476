package front_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/front"
	"gnuthought.com/efs-stunnel/test/support/lanestest"
)

// testTimeout is long enough for a busy machine.
const testTimeout = 5 * time.Minute

// harness is a front before a server without TLS, which accepts from the front's socket in place of stunnel.
type harness struct {
	testing.TB
	front   *front.Front
	server  *lanestest.Server
	address string
	stunnel net.Listener
}

func newHarness(t testing.TB, lanes int, server *lanestest.Server) *harness {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		test.Parallel() // most tests wait for lanes, which are added after three seconds
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		t.Fatalf("the listener is a %T", listener)
	}
	socket, err := tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	h := &harness{TB: t, server: server, address: listener.Addr().String()}
	if h.front, err = front.Start(socket, filepath.Join(t.TempDir(), "lane"), lanes, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
		t.Fatal(err)
	}
	if h.stunnel, err = net.FileListener(h.front.Socket()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.stunnel.Close()
		if err := h.front.Close(); err != nil {
			t.Error(err)
		}
		h.eventually("all lanes end", func() bool { s := h.front.Status(); return s.Open == 0 && s.Waiting == 0 })
	})
	go func() {
		for {
			conn, err := h.stunnel.Accept()
			if err != nil {
				return
			}
			go server.Serve(conn)
		}
	}()
	return h
}

// partitioned returns a server that lets a client have more lanes at once.
func partitioned(n int) *lanestest.Server {
	return &lanestest.Server{Partitions: n, Kind: lanestest.Ready, Lanes: 5, BusyRate: 1000}
}

func (h *harness) dial() net.Conn {
	h.Helper()
	conn, err := (&net.Dialer{}).DialContext(h.Context(), "tcp", h.address)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		h.Fatal(err)
	}
	return conn
}

func (h *harness) eventually(what string, is func() bool) {
	h.Helper()
	for deadline := time.Now().Add(testTimeout); !is(); {
		if time.Now().After(deadline) {
			h.Fatalf("timed out waiting until %s: %+v", what, h.front.Status())
		}
		<-time.After(time.Millisecond)
	}
}

func (h *harness) send(conn net.Conn, record []byte) {
	h.Helper()
	if _, err := conn.Write(record); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) load(conn net.Conn, first uint32, calls, slots, size, answer int) {
	h.Helper()
	if err := lanestest.Load(conn, first, calls, slots, size, answer); err != nil {
		h.Fatal(err)
	}
}

// grow loads a connection until it has a number of lanes, and keeps it from getting more in place of those that end.
func (h *harness) grow(conn net.Conn, lanes int64) {
	h.Helper()
	first := uint32(1000)
	h.eventually("there are lanes", func() bool {
		h.load(conn, first, 20, 10, 100, 20000)
		first += 20
		return h.front.Status().Open == lanes
	})
	h.front.KeepLanes()
}

// open returns the server's open connections, without those that searches only tried.
func (h *harness) open() []int {
	h.Helper()
	var open []int
	h.eventually("connections that were tried end", func() bool {
		open = nil
		for i, c := range h.server.Conns() {
			if !c.Ended {
				open = append(open, i)
			}
		}
		return int64(len(open)) == h.front.Status().Open
	})
	return open
}

func TestRequestsAreSpreadOverOnePartition(t *testing.T) {
	h := newHarness(t, 5, partitioned(3))
	conn := h.dial()
	h.send(conn, lanestest.Null(1))
	if _, err := lanestest.ReadRecord(conn); err != nil {
		t.Fatal(err)
	}
	h.grow(conn, 5)
	before := h.server.Conns()
	// Records smaller and larger than the front's buffers, in both directions.
	for i, size := range []int{0, 3, 40000, 1 << 20} {
		h.load(conn, uint32(1e6*(i+1)), 60, 30, size, size)
		h.load(conn, uint32(1e6*(i+1)+1e5), 60, 30, size, 70000)
	}
	used := 0
	for i, c := range h.server.Conns()[:len(before)] {
		if c.Requests > before[i].Requests {
			used++
		}
	}
	if used != 5 || h.server.Wrong() != 0 {
		t.Errorf("requests went over %d connections, %d to a wrong partition; want 5 and none", used, h.server.Wrong())
	}
	h.eventually("nothing waits", func() bool { return h.front.Status().Waiting == 0 }) // long answers are counted after they are written
	if s := h.front.Status(); s.Open != 5 || s.Seconds <= 0 {
		t.Errorf("the status is %+v", s)
	}
}

func TestNullCallsAreNotGreeted(t *testing.T) {
	h := newHarness(t, 5, partitioned(3))
	conn := h.dial()
	for xid := range uint32(3) {
		h.send(conn, lanestest.Null(xid))
		if _, err := lanestest.ReadRecord(conn); err != nil {
			t.Fatal(err)
		}
	}
	if conns := h.server.Conns(); len(conns) != 1 || conns[0].Greeted || conns[0].Nulls != 3 {
		t.Errorf("got %+v", conns)
	}
	h.load(conn, 10, 1, 1, 0, 0)
	h.eventually("the first connection ends", func() bool {
		conns := h.server.Conns()
		return len(conns) == 2 && conns[0].Ended && conns[1].Greeted && conns[1].Requests == 1
	})
}

// TestClientsWithoutSessionsGetOneLane: NFS 4.0 does not allow several connections.
func TestClientsWithoutSessionsGetOneLane(t *testing.T) {
	h := newHarness(t, 5, partitioned(1))
	conn := h.dial()
	began := time.Now()
	for xid := uint32(1); time.Since(began) < 5*time.Second; xid++ {
		h.send(conn, lanestest.Compound(xid, 0, 0, 20000))
		if _, err := lanestest.ReadRecord(conn); err != nil {
			t.Fatal(err)
		}
	}
	if s := h.front.Status(); s.Open != 1 {
		t.Errorf("there are %d lanes", s.Open)
	}
}

func TestLossOfAnIdleLaneEndsNothing(t *testing.T) {
	h := newHarness(t, 3, partitioned(1))
	conn := h.dial()
	h.grow(conn, 3)
	open := h.open()
	h.server.Kill(open[1])
	h.eventually("the lane is gone", func() bool { return h.front.Status().Open == 2 })
	h.load(conn, 1, 100, 10, 100, 100)
	h.server.Kill(open[0])
	h.eventually("the first lane is gone, too", func() bool { return h.front.Status().Open == 1 })
	h.load(conn, 200, 100, 10, 100, 100)
	h.server.Kill(open[2])
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v after the loss of the last lane, want the end", err)
	}
}

func TestLossOfALaneWithRequestsEndsTheConnection(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	server := partitioned(1)
	h := newHarness(t, 3, server)
	conn, other := h.dial(), h.dial()
	h.grow(conn, 3) // the other one has none yet
	server.SetHold(hold)
	h.send(conn, lanestest.Compound(1, 1, 0, 0))
	h.eventually("it waits", func() bool { return h.front.Status().Waiting == 1 })
	h.server.Kill(h.open()[0])
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
	h.send(other, lanestest.Null(1))
	if _, err := lanestest.ReadRecord(other); err != nil {
		t.Errorf("another client: %v", err)
	}
}

func TestRepliesToTheServerReturnWhereTheCallCame(t *testing.T) {
	h := newHarness(t, 3, partitioned(1))
	conn := h.dial()
	h.grow(conn, 3)
	for _, i := range h.open() {
		xid := uint32(70 + i)
		if err := h.server.Call(i, xid); err != nil {
			t.Fatal(err)
		}
		if m, err := lanestest.ReadRecord(conn); err != nil || len(m) != 40 {
			t.Fatalf("the call of the server: %x, %v", m, err)
		}
		h.send(conn, lanestest.Reply(xid))
		h.eventually("the reply comes", func() bool { return h.server.Replied(xid) == i })
	}
}

func TestHostileRecordsEndTheirConnectionOnly(t *testing.T) {
	h := newHarness(t, 5, partitioned(3))
	good := h.dial()
	h.load(good, 1, 5, 5, 100, 100)
	for name, bytes := range map[string][]byte{
		"too long":                 {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"no message":               {0x80, 0, 0, 4, 1, 2, 3, 4},
		"empty fragments":          make([]byte, 4<<20),
		"a reply to nothing":       lanestest.Reply(9),
		"text":                     []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"fragments without an end": append([]byte{0, 0, 0, 24}, lanestest.Null(9)[4:28]...),
	} {
		t.Run(name, func(t *testing.T) {
			conn := h.dial()
			_, _ = conn.Write(bytes) // may be refused before its end
			if name == "fragments without an end" {
				for err := error(nil); err == nil; {
					if _, err = conn.Write(append([]byte{0, 0, 1, 0}, make([]byte, 256)...)); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the connection does not end")
					}
				}
				return
			}
			if n, err := io.Copy(io.Discard, conn); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %d bytes and %v, want the end", n, err)
			}
		})
	}
	h.load(good, 100, 50, 5, 100, 100)
}

// TestCutRecordsReachNobody: a client that ends in the middle of a record takes only its own lanes with it.
func TestCutRecordsReachNobody(t *testing.T) {
	h := newHarness(t, 5, partitioned(3))
	good := h.dial()
	h.load(good, 1, 5, 5, 100, 100)
	for _, n := range []int{1, 3, 10, 30, 1000} {
		conn := h.dial()
		h.send(conn, lanestest.Compound(7, 1, 100000, 10)[:n])
		conn.Close()
	}
	h.eventually("its lanes end", func() bool { return h.front.Status().Open == 1 && h.front.Status().Waiting == 0 })
	h.load(good, 100, 50, 5, 100, 100)
}
