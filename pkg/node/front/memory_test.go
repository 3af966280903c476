package front

import (
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/test/support/lanestest"
)

// TestMountsHoldAtMostOneMiB counts the buffers of a mount with all lanes.
func TestMountsHoldAtMostOneMiB(t *testing.T) {
	if held := maxChunks*chunkBytes + chunkBytes + tunnelspec.MaxLanes*answerBytes; held > 1<<20 {
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
