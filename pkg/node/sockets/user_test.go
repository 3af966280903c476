package sockets_test

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

func TestListenersOfOneUser(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	for uid, want := range map[int]int{os.Getuid(): 1, os.Getuid() + 1: 0, -1: 0} {
		all, err := new(sockets.Lister).ListeningAs(uid)
		if err != nil || len(all[address]) != want {
			t.Errorf("user %d: got %v and error %v, want %d listeners", uid, all[address], err, want)
		}
	}
}
