package front_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"golang.org/x/time/rate"

	"gnuthought.com/efs-stunnel/test/support/lanestest"
)

func TestServersWithoutPartitionsGetOneLane(t *testing.T) {
	for name, tt := range map[string]struct {
		server    *lanestest.Server
		greetings int
	}{
		"the program is unknown": {&lanestest.Server{}, 1},
		"retry":                  {&lanestest.Server{Partitions: 2, Kind: lanestest.Retry, Lanes: 5, BusyRate: 1000}, 3},
		"retry later":            {&lanestest.Server{Partitions: 2, Kind: lanestest.RetryLater, Lanes: 5, BusyRate: 1000}, 1},
		"no answer":              {&lanestest.Server{Instead: []byte{}}, 1},
		"text":                   {&lanestest.Server{Instead: []byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, 1},
		"too long":               {&lanestest.Server{Instead: make([]byte, 1<<20)}, 1},
		"more than one record":   {&lanestest.Server{Instead: append(lanestest.Answer(1, 0), lanestest.Answer(2, 0)...)}, 1},
		"of another call":        {&lanestest.Server{Instead: lanestest.Answer(1, 84)}, 1},
		"error":                  {&lanestest.Server{Partitions: 2, Kind: lanestest.Error, Lanes: 5, BusyRate: 1000}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, 5, tt.server)
			for range 2 {
				h.load(h.dial(), 1, 50, 10, 100, 100)
			}
			conns, greeted := h.server.Conns(), 0
			for _, c := range conns {
				if c.Greeted {
					greeted++
				}
			}
			if len(conns) != tt.greetings+2 || greeted != tt.greetings {
				t.Errorf("got %+v, want %d greetings, and a connection for each client", conns, tt.greetings)
			}
		})
	}
}

// TestServersThatAreBackGetLanes: neither a server that was away nor one that was busy costs a mount its lanes.
func TestServersThatAreBackGetLanes(t *testing.T) {
	for name, edit := range map[string]func(*lanestest.Server){
		"away": func(s *lanestest.Server) { s.Refused = 2 },
		"busy": func(s *lanestest.Server) { s.Retries = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			server := partitioned(1)
			edit(server)
			h := newHarness(t, 3, server)
			if server.Refused > 0 {
				conn := h.dial()
				h.send(conn, lanestest.Compound(1, 1, 0, 0))
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Fatalf("got %v, want the end", err)
				}
			}
			h.grow(h.dial(), 3)
		})
	}
}

func TestPinnedServersGetLanesWithoutGreeting(t *testing.T) {
	h := newHarness(t, 5, &lanestest.Server{})
	h.front.SetPinned(3)
	h.front.LowerBusyRate(1 << 10)
	conn := h.dial()
	h.load(conn, 1, 1, 1, 0, 0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pace := rate.NewLimiter(20, 1) // the rate decides, so the processors may rest
	var running sync.WaitGroup
	running.Go(func() {
		for first := uint32(1000); pace.Wait(ctx) == nil; first += 40 {
			if err := lanestest.Load(conn, first, 40, 32, 0, 1<<14); err != nil {
				t.Error(err)
				return
			}
		}
	})
	h.eventually("there are three lanes", func() bool { return h.front.Status().Open == 3 })
	stop()
	running.Wait()
	for _, c := range h.server.Conns() {
		if c.Greeted {
			t.Error("a connection was greeted")
		}
	}
}

// TestConnectionsWithoutAServerAreNoLanes: stunnel accepts connections that the server does not.
func TestConnectionsWithoutAServerAreNoLanes(t *testing.T) {
	h := newHarness(t, 3, &lanestest.Server{Most: 1})
	h.front.SetPinned(3)
	h.front.LowerBusyRate(1 << 10)
	conn, first := h.dial(), uint32(1000)
	h.eventually("more lanes are tried", func() bool {
		h.load(conn, first, 20, 10, 100, 20000)
		first += 20
		return len(h.server.Conns()) > 1
	})
	h.load(conn, 1, 200, 10, 100, 20000)
	if s := h.front.Status(); s.Open != 1 {
		t.Errorf("there are %d lanes", s.Open)
	}
}

// TestNoLaneLeadsToAnotherServer: a mount of a pinned server keeps its lanes when the table names another one.
func TestNoLaneLeadsToAnotherServer(t *testing.T) {
	h := newHarness(t, 3, &lanestest.Server{})
	h.front.SetPinned(3)
	h.front.LowerBusyRate(1 << 10)
	before := h.dial()
	h.load(before, 1, 1, 1, 0, 0)
	h.front.ServersChanged()
	after := h.dial()
	first := uint32(1000)
	h.eventually("the later mount has three lanes", func() bool {
		h.load(before, first, 20, 10, 100, 20000)
		h.load(after, first, 20, 10, 100, 20000)
		first += 20
		return h.front.Status().Open >= 4
	})
	if conns, want := h.server.Conns(), 1+int(first-1000); conns[0].Requests != want {
		t.Errorf("got %+v, want %d requests of the earlier mount on its only connection", conns, want)
	}
}
