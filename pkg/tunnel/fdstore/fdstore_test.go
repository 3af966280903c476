package fdstore_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/fdstore"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
)

const patience = 60 * time.Second

// closeAll closes listening sockets, to which nothing was written that could be lost.
func closeAll(sockets ...io.Closer) {
	for _, socket := range sockets {
		_ = socket.Close()
	}
}

// place is where a store is, or may be.
type place struct {
	*testing.T
	path string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return &place{t, filepath.Join(t.TempDir(), "store.sock")}
}

// serve runs a store until the returned function ends it.
func (p *place) serve() (end func()) {
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- fdstore.Serve(ctx, p.path, slog.New(slog.DiscardHandler)) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			p.Errorf("the store ended with %v", err)
		}
	}
}

// socket listens, and is nobody's but the test's.
func (p *place) socket() (netip.AddrPort, *os.File) {
	p.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)})
	if err != nil {
		p.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { closeAll(file) })
	return netip.MustParseAddrPort(listener.Addr().String()), file
}

func (p *place) keeper() (k *fdstore.Keeper, end func()) {
	ctx, cancel := context.WithCancel(p.Context())
	p.Cleanup(cancel)
	return fdstore.NewKeeper(ctx, p.path, slog.New(slog.DiscardHandler)), cancel
}

// listens says whether a socket is open at an address.
func (p *place) listens(address netip.AddrPort) bool {
	p.Helper()
	all, err := sockets.Listening()
	if err != nil {
		p.Fatal(err)
	}
	return len(all[address]) > 0
}

func (p *place) until(what string, done func() bool) {
	p.Helper()
	for deadline := time.Now().Add(patience); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("not in time: %s", what)
		}
	}
}

// taken waits until the store gives so many sockets.
func (p *place) taken(count int) map[netip.AddrPort]*os.File {
	p.Helper()
	var files map[netip.AddrPort]*os.File
	p.until("the store has what was kept", func() bool {
		for _, file := range files {
			closeAll(file)
		}
		files = fdstore.Take(p.path, slog.New(slog.DiscardHandler))
		return len(files) == count
	})
	return files
}

func TestSocketsOutliveTheirOwner(t *testing.T) {
	p := newPlace(t)
	end := p.serve()
	one, oneFile := p.socket()
	two, twoFile := p.socket()
	keeper, endKeeper := p.keeper()
	keeper.Keep(map[netip.AddrPort]*os.File{one: oneFile, two: twoFile})
	for _, file := range p.taken(2) {
		closeAll(file)
	}
	endKeeper()
	closeAll(oneFile, twoFile)
	if !p.listens(one) || !p.listens(two) {
		t.Fatal("a port is shut while its owner is away")
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", one.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken := p.taken(2)
	listener, err := net.FileListener(taken[one])
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	waiting, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if waiting.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Errorf("got a connection from %s, want the one that waited", waiting.RemoteAddr())
	}
	waiting.Close()
	second, _ := p.keeper()
	second.Keep(map[netip.AddrPort]*os.File{one: taken[one]})
	closeAll(taken[two])
	p.until("what the new owner does not want is closed", func() bool { return !p.listens(two) })
	second.Keep(nil)
	closeAll(listener, taken[one])
	p.until("what is not wanted any more is closed", func() bool { return !p.listens(one) })
	end()
}

func TestKeeperFindsALaterStore(t *testing.T) {
	p := newPlace(t)
	address, file := p.socket()
	keeper, _ := p.keeper()
	keeper.Keep(map[netip.AddrPort]*os.File{address: file})
	if files := fdstore.Take(p.path, slog.New(slog.DiscardHandler)); len(files) > 0 {
		t.Fatalf("got %v from no store", files)
	}
	for range 2 {
		end := p.serve()
		closeAll(p.taken(1)[address])
		end()
	}
}

// TestNonsense has a store outlive a client that does not know its language.
func TestNonsense(t *testing.T) {
	p := newPlace(t)
	end := p.serve()
	defer end()
	for _, words := range []string{"", "x", `{"verb":"keep","address":"127.0.0.1:1"}`, `{"verb":"kept"}`, `{"verb":1}`} {
		var conn net.Conn
		p.until("the store is reached", func() (ok bool) {
			var err error
			conn, err = (&net.Dialer{}).DialContext(t.Context(), "unixpacket", p.path)
			return err == nil
		})
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
	address, file := p.socket()
	keeper, _ := p.keeper()
	keeper.Keep(map[netip.AddrPort]*os.File{address: file})
	closeAll(p.taken(1)[address])
}
