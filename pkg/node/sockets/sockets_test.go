package sockets_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

func TestClientsAndListeners(t *testing.T) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	const connections = 3
	for range connections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for name, tt := range map[string]struct {
		except, want int
	}{
		"no user is excluded":      {-1, connections},
		"another user is excluded": {os.Getuid() + 1, connections},
		"this user is excluded":    {os.Getuid(), 0},
	} {
		uses, err := new(sockets.Lister).Clients(tt.except)
		if err != nil {
			t.Fatal(err)
		}
		if uses[address] != tt.want {
			t.Errorf("%s: got %d connections, want %d", name, uses[address], tt.want)
		}
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inode, err := sockets.Inode(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := new(sockets.Lister).Listening()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all[address], []uint32{inode}) {
		t.Errorf("got listeners %v, want %d", all[address], inode)
	}
	if err := errors.Join(listener.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	if all, err = new(sockets.Lister).Listening(); err != nil || len(all[address]) > 0 {
		t.Errorf("got listeners %v and error %v, want none after the close", all[address], err)
	}
}

// TestListeningReadsAllAnswers has more sockets than fit into one answer of the kernel.
func TestListeningReadsAllAnswers(t *testing.T) {
	var addresses []netip.AddrPort
	for range 1500 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.9:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addresses = append(addresses, netip.MustParseAddrPort(listener.Addr().String()))
	}
	all, err := new(sockets.Lister).Listening()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if len(all[address]) != 1 {
			t.Fatalf("got %v at %s, want one listener", all[address], address)
		}
	}
}
