package supervise

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func TestShutdownClosesTunnelsOnlyWhenTheyAreUnusedOrHandedOver(t *testing.T) {
	const drain = time.Minute
	address := stunneltest.FreePort(t, "127.0.0.9")
	tests := map[string]struct {
		clients            int
		clientsErr, others error
		successor          bool
		after              time.Duration
		closed             bool
	}{
		"no client":                           {closed: true},
		"a client":                            {clients: 1},
		"a client and a successor":            {clients: 1, successor: true, closed: true},
		"unknown clients":                     {clientsErr: unix.EACCES},
		"unknown clients and a successor":     {clientsErr: unix.EACCES, successor: true, closed: true},
		"a client and unknown listeners":      {clients: 1, others: unix.EACCES},
		"no client and unknown listeners":     {others: unix.EACCES, closed: true},
		"nothing is known":                    {clientsErr: unix.EACCES, others: unix.EACCES},
		"nothing is known until the deadline": {clientsErr: unix.EACCES, others: unix.EACCES, after: drain, closed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			watcher, err := newConnWatcher(func(int32) {})
			if err != nil {
				t.Fatal(err)
			}
			defer watcher.close()
			tunnel := listeningTunnel(t, address)
			s := newSupervisor(Options{
				Clients: func() (sockets.ClientCounts, error) {
					return sockets.ClientCounts{address: tt.clients}, tt.clientsErr
				},
				Listening: func() (sockets.Listeners, error) {
					all := sockets.Listeners{address: {tunnel.socket.inode}}
					if tt.successor {
						all[address] = append(all[address], tunnel.socket.inode+1)
					}
					return all, tt.others
				},
				Log: slog.New(slog.DiscardHandler),
			}, confdir.Dir{}, stunnelcfg.Features{}, nil)
			s.connWatcher, s.tunnels["fs-1"] = watcher, tunnel
			s.closing, s.closeBy = true, epoch.Add(drain)
			s.closeTunnels(epoch.Add(tt.after))
			if closed := tunnel.closing && tunnel.socket == nil; closed != tt.closed {
				t.Errorf("closed: %v, want %v", closed, tt.closed)
			}
		})
	}
}

func listeningTunnel(t *testing.T, address netip.AddrPort) *tunnel {
	t.Helper()
	l, err := listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.file.Close() }) // the tunnel may have closed it
	tunnel := newTunnel("fs-1", 0)
	tunnel.socketOpened(l)
	return tunnel
}
