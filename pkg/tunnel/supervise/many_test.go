package supervise_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

const many = 100

// One tunnel's data flows while 99 others start, reload, restart, and go.
func TestManyTunnels(t *testing.T) {
	w := newWorld(t)
	server := w.server()
	began := time.Now()
	w.supervise()
	tunnels := make([]spec.Tunnel, many)
	for i := range tunnels {
		tunnels[i] = w.tunnel(fmt.Sprintf("fs-%d", i), server.Address)
		// An address of its own, as a free port is free only until another test takes it.
		tunnels[i].Accept = stunneltest.FreePort(t, fmt.Sprintf("127.0.9.%d", 1+i))
		w.write(tunnels[i])
		if started := i + 1; started%20 == 0 {
			w.allListen(started) // a busy machine would take longer for all than a single start may
		}
	}
	t.Logf("%d tunnels listen %s after the start", many, time.Since(began))
	before := w.status("fs-0")

	conn := w.dial(tunnels[0].Accept)
	stop, transferred := make(chan struct{}), make(chan int, 1)
	go func() { transferred <- transfer(t, conn, stop) }()
	for i := range tunnels[1:] {
		other := &tunnels[1+i]
		switch i % 3 {
		case 0:
			other.Connect = append(other.Connect, server.Address) // reload
			w.write(*other)
		case 1:
			other.Restart++
			w.write(*other)
		case 2:
			if err := w.dir.Remove(other.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.poll("the others have changed", func() bool {
		status, err := supervise.ReadStatus(w.dir)
		return err == nil && len(status.Tunnels) == many-33 && changed(status)
	}, func() any { return nil })
	close(stop)
	if blocks := <-transferred; blocks < 10 {
		t.Errorf("got %d blocks through meanwhile, want more", blocks)
	}
	after := w.status("fs-0")
	if after.PID != before.PID || after.Reloads != 0 || after.Process != nil || after.Problems[supervise.ReasonDied] != 0 {
		t.Errorf("got %+v after %+v, want the tunnel in use untouched", after, before)
	}
}

// changed: a third was reloaded, a third restarted, and all that are left listen.
func changed(status supervise.Status) bool {
	reloads, restarts, listening := 0, 0, 0
	for _, tunnel := range status.Tunnels {
		reloads, restarts = reloads+tunnel.Reloads, restarts+tunnel.Restarts
		if tunnel.Listening && tunnel.State == supervise.StateRunning {
			listening++
		}
	}
	return reloads == 33 && restarts == 33 && listening == len(status.Tunnels)
}

// transfer sends blocks and wants each back until it is told to stop.
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
			t.Errorf("block %d came back otherwise: %v", blocks, err)
			return blocks
		}
		blocks++
	}
}

func (w *world) allListen(count int) {
	w.Helper()
	listening := 0
	w.poll("all tunnels listen", func() bool {
		status, err := supervise.ReadStatus(w.dir)
		if err != nil {
			return false
		}
		listening = 0
		for _, tunnel := range status.Tunnels {
			if tunnel.State == supervise.StateRunning {
				listening++
			}
		}
		return listening == count
	}, func() any { return listening })
}
