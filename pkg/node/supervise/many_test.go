package supervise_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const tunnelCount = 100

// TestChangesOfOtherTunnelsDoNotDisturbTransfer reloads, restarts and removes 99 other tunnels.
func TestChangesOfOtherTunnelsDoNotDisturbTransfer(t *testing.T) {
	h := newHarness(t)
	server := h.startServer()
	began := time.Now()
	h.startSupervisor()
	tunnels := make([]tunnelspec.Tunnel, tunnelCount)
	for i := range tunnels {
		tunnels[i] = h.newTunnel(fmt.Sprintf("fs-%d", i), server.Address)
		// Another address for each tunnel, as another test could take a free port.
		tunnels[i].Accept = stunneltest.FreePort(t, fmt.Sprintf("127.0.9.%d", 1+i))
		h.writeSpec(tunnels[i])
		if started := i + 1; started%20 == 0 {
			h.waitAllRunning(started) // on a busy machine, starting all at once exceeds the start timeout
		}
	}
	t.Logf("%d tunnels listen %s after the start", tunnelCount, time.Since(began))
	before := h.status("fs-0")

	conn := h.dial(tunnels[0].Accept)
	stop, transferred := make(chan struct{}), make(chan int, 1)
	go func() { transferred <- transfer(t, conn, stop) }()
	for i := range tunnels[1:] {
		other := &tunnels[1+i]
		switch i % 3 {
		case 0:
			other.Connect = append(other.Connect, server.Address) // reload
			h.writeSpec(*other)
		case 1:
			other.Restart++
			h.writeSpec(*other)
		case 2:
			if err := h.dir.Remove(other.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.poll("the others have changed", func() bool {
		status, err := supervise.ReadStatus(h.dir)
		return err == nil && len(status.Tunnels) == tunnelCount-33 && allChanged(status)
	}, func() any { return nil })
	close(stop)
	if blocks := <-transferred; blocks < 10 {
		t.Errorf("got %d blocks during the changes, want at least 10", blocks)
	}
	after := h.status("fs-0")
	if after.PID != before.PID || after.Reloads != 0 || after.Process != nil || after.Problems[tunnelspec.ReasonDied] != 0 {
		t.Errorf("got %+v after %+v, want the tunnel in use unchanged", after, before)
	}
}

// allChanged reports whether a third was reloaded, a third restarted, and the remaining tunnels run.
func allChanged(status tunnelspec.Status) bool {
	reloads, restarts, listening := 0, 0, 0
	for _, tunnel := range status.Tunnels {
		reloads, restarts = reloads+tunnel.Reloads, restarts+tunnel.Restarts
		if tunnel.Listening && tunnel.State == tunnelspec.StateRunning {
			listening++
		}
	}
	return reloads == 33 && restarts == 33 && listening == len(status.Tunnels)
}

// transfer sends blocks and checks their echo until stop is closed.
func transfer(t *testing.T, conn io.ReadWriter, stop <-chan struct{}) (blocks int) {
	sent, got := make([]byte, 16<<10), make([]byte, 16<<10)
	for {
		select {
		case <-stop:
			return blocks
		default:
		}
		copy(sent, fmt.Sprintf("block %d ", blocks))
		if _, err := conn.Write(sent); err != nil {
			t.Errorf("block %d: %v", blocks, err)
			return blocks
		}
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(sent, got) {
			t.Errorf("block %d: got another echo or error %v", blocks, err)
			return blocks
		}
		blocks++
	}
}

func (h *harness) waitAllRunning(count int) {
	h.Helper()
	listening := 0
	h.poll("all tunnels listen", func() bool {
		status, err := supervise.ReadStatus(h.dir)
		if err != nil {
			return false
		}
		listening = 0
		for _, tunnel := range status.Tunnels {
			if tunnel.State == tunnelspec.StateRunning {
				listening++
			}
		}
		return listening == count
	}, func() any { return listening })
}
