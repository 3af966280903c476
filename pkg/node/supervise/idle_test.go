package supervise

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// TestClientsAreCountedBeforeAnIdleStop has a tunnel that becomes idle between two counts at intervals.
func TestClientsAreCountedBeforeAnIdleStop(t *testing.T) {
	const idle = clientsInterval - time.Second
	tests := map[string]struct {
		clients int
		err     error
		want    phase
	}{
		"no client":              {want: phaseStopping},
		"a client has connected": {clients: 1, want: phaseRunning},
		"the count fails":        {err: errors.New("not permitted"), want: phaseRunning},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tunnel := newIdleSimulation(testConfig(20490, 0, ""), idle)
			tunnel.runSteps()
			tunnel.connectionWaiting()
			tunnel.runSteps()
			tunnel.acceptsConfig()
			clients, err := sockets.ClientCounts{}, error(nil)
			s := newSupervisor(Options{
				Clients: func() (sockets.ClientCounts, error) { return clients, err },
				Log:     slog.New(slog.DiscardHandler),
			}, confdir.Dir{}, stunnelcfg.Features{}, nil)
			s.tunnels["fs-1"] = tunnel.tunnel
			s.checkClients(epoch)
			clients[netip.MustParseAddrPort("127.0.0.1:20490")], err = tt.clients, tt.err
			s.checkClients(epoch.Add(idle))
			s.advance(epoch.Add(idle))
			if tunnel.phase != tt.want {
				t.Errorf("got phase %d, want %d", tunnel.phase, tt.want)
			}
		})
	}
}
