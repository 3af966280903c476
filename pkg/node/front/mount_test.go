package front

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/test/support/lanestest"
)

// startMount starts a mount with lanes that are pipes, and returns the client's end and the servers' ends.
func startMount(t *testing.T, lanes int) (client net.Conn, servers []net.Conn) {
	client, end := net.Pipe()
	m := newMount(&Front{lanes: lanes, log: slog.New(slog.DiscardHandler)}, end)
	m.greeted = true
	for range lanes {
		conn, server := net.Pipe()
		servers = append(servers, server)
		m.add(conn)
	}
	go m.run()
	t.Cleanup(func() { m.end(nil) })
	for _, conn := range append(servers, client) {
		if err := conn.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return client, servers
}

func mustWrite(t *testing.T, conn io.Writer, p []byte) {
	t.Helper()
	if _, err := conn.Write(p); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, conn io.Reader) []byte {
	t.Helper()
	m, err := lanestest.ReadRecord(conn)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnswersBehindALongOneDoNotWait for more bytes of the lane: there may be none.
func TestAnswersBehindALongOneDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, servers := startMount(t, 1)
		for xid := range uint32(3) {
			mustWrite(t, client, lanestest.Compound(xid, 1, 0, 0))
			mustRead(t, servers[0])
		}
		go func() {
			_, _ = servers[0].Write(append(append(lanestest.Answer(0, answerBytes), lanestest.Answer(1, 0)...), lanestest.Answer(2, 0)...))
		}()
		for xid := range uint32(3) {
			if m := mustRead(t, client); m[3] != byte(xid) {
				t.Errorf("answer %d begins with %x", xid, m[:4])
			}
		}
	})
}

// TestRepliesToALaneThatEndsHoldNothing: nothing waits for the reply to a call of the server, so its lane may end
// before the reply is whole.
func TestRepliesToALaneThatEndsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, servers := startMount(t, 2)
		mustWrite(t, servers[1], lanestest.Call(9))
		mustRead(t, client)
		reply := lanestest.Answer(9, 2*maxChunks*chunkBytes)
		mustWrite(t, client, reply[:2*chunkBytes]) // of which some waits to be written
		servers[1].Close()
		synctest.Wait()
		mustWrite(t, client, reply[2*chunkBytes:])
		mustWrite(t, client, lanestest.Compound(1, 1, 0, 0))
		mustRead(t, servers[0])
	})
}
