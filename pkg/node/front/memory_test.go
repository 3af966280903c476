package front

import (
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/test/support/lanestest"
)

// TestMountsHoldLittle counts the buffers of a mount with all lanes, to which stunnel adds 0.8 MiB for four of them.
func TestMountsHoldLittle(t *testing.T) {
	if held := maxChunks*chunkBytes + chunkBytes + tunnelspec.MaxLanes*answerBytes; held > 12<<20/10 {
		t.Errorf("a mount may hold %d bytes", held)
	}
}

// TestLanesThatTakeNothingStopTheClient: no more is read of a client than the buffers hold.
func TestLanesThatTakeNothingStopTheClient(t *testing.T) {
	client, end := net.Pipe() // has no buffer of its own
	defer client.Close()
	m := newMount(&Front{lanes: tunnelspec.MaxLanes, log: slog.New(slog.DiscardHandler)}, end)
	m.greeted = true
	for range tunnelspec.MaxLanes {
		conn, silent := net.Pipe()
		defer silent.Close()
		m.add(conn)
	}
	go m.run()
	defer m.end(nil)
	var taken atomic.Int64
	go func() {
		for xid := uint32(1); ; xid++ {
			for rest := lanestest.Compound(xid, 1, 1<<20, 0); len(rest) > 0; rest = rest[1024:] {
				rest = append(rest, make([]byte, max(0, 1024-len(rest)))...)
				if _, err := client.Write(rest[:1024]); err != nil {
					return
				}
				taken.Add(1024)
			}
		}
	}()
	for deadline := time.Now().Add(time.Minute); len(m.chunks) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d chunks are free after %d bytes", len(m.chunks), taken.Load())
		}
		<-time.After(time.Millisecond)
	}
	// The buffer of the reader may be full once more.
	if most := int64((maxChunks + 1) * chunkBytes); taken.Load() > most {
		t.Errorf("it took %d bytes, want at most %d", taken.Load(), most)
	}
}

// TestRecordsThatDoNotEndAreGivenUp: a client that stops within a record is closed, one that stops between records
// is not.
func TestRecordsThatDoNotEndAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, end := net.Pipe()
		m := newMount(&Front{lanes: 1, log: slog.New(slog.DiscardHandler)}, end)
		go m.run()
		<-time.After(time.Hour)
		if _, err := client.Write(lanestest.Null(1)[:10]); err != nil {
			t.Fatalf("the connection ended while nothing was sent: %v", err)
		}
		began := time.Now()
		if _, err := client.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != recordTimeout { //nolint:errorlint // of a pipe
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

// TestDroppedLanesLeaveNothing: a mount that lives for weeks has only the goroutines of its present lanes.
func TestDroppedLanesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, end := net.Pipe()
		defer client.Close()
		m := newMount(&Front{lanes: 2, log: slog.New(slog.DiscardHandler)}, end)
		m.greeted = true
		for range 101 {
			conn, far := net.Pipe()
			defer far.Close()
			m.add(conn)
		}
		for m.count() > 1 {
			m.dropSpare()
		}
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := strings.Count(string(stacks), "front.(*mount).write("); n != 1 {
			t.Errorf("%d goroutines write to one lane", n)
		}
		m.end(nil)
	})
}
