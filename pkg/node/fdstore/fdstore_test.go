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

	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

const testTimeout = 60 * time.Second

// closeAll ignores errors: no data can be lost on a listening socket.
func closeAll(sockets ...io.Closer) {
	for _, socket := range sockets {
		_ = socket.Close()
	}
}

type harness struct {
	*testing.T
	path string // of the store's socket
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	return &harness{t, filepath.Join(t.TempDir(), "store.sock")}
}

// startStore runs a store until the returned function stops it.
func (h *harness) startStore() (end func()) {
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- fdstore.Serve(ctx, h.path, slog.New(slog.DiscardHandler)) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			h.Errorf("store returned %v", err)
		}
	}
}

// newSocket returns a listening socket of which the test has the only descriptor.
func (h *harness) newSocket() (netip.AddrPort, *os.File) {
	h.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)})
	if err != nil {
		h.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { closeAll(file) })
	return netip.MustParseAddrPort(listener.Addr().String()), file
}

func (h *harness) newClient() (client *fdstore.Client, end func()) {
	ctx, cancel := context.WithCancel(h.Context())
	h.Cleanup(cancel)
	return fdstore.NewClient(ctx, h.path, slog.New(slog.DiscardHandler)), cancel
}

// isOpen reports whether a socket listens on an address.
func (h *harness) isOpen(address netip.AddrPort) bool {
	h.Helper()
	all, err := new(sockets.Lister).Listening()
	if err != nil {
		h.Fatal(err)
	}
	return len(all[address]) > 0
}

func (h *harness) waitFor(what string, done func() bool) {
	h.Helper()
	for deadline := time.Now().Add(testTimeout); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("timed out waiting until %s", what)
		}
	}
}

// waitTaken takes sockets until the store returns count of them.
func (h *harness) waitTaken(count int) map[netip.AddrPort]*os.File {
	h.Helper()
	var files map[netip.AddrPort]*os.File
	h.waitFor("the store has the sockets", func() bool {
		for _, file := range files {
			closeAll(file)
		}
		files = fdstore.Take(h.path, slog.New(slog.DiscardHandler))
		return len(files) == count
	})
	return files
}

func TestStoredSocketsOutliveSupervisor(t *testing.T) {
	h := newHarness(t)
	end := h.startStore()
	one, oneFile := h.newSocket()
	two, twoFile := h.newSocket()
	client, endClient := h.newClient()
	client.Store(map[netip.AddrPort]*os.File{one: oneFile, two: twoFile})
	for _, file := range h.waitTaken(2) {
		closeAll(file)
	}
	endClient()
	closeAll(oneFile, twoFile)
	if !h.isOpen(one) || !h.isOpen(two) {
		t.Fatal("a port is closed while no supervisor runs")
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", one.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken := h.waitTaken(2)
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
		t.Errorf("got a connection from %s, want the one that was waiting", waiting.RemoteAddr())
	}
	waiting.Close()
	second, _ := h.newClient()
	second.Store(map[netip.AddrPort]*os.File{one: taken[one]})
	closeAll(taken[two])
	h.waitFor("the socket that the new supervisor does not store is closed", func() bool { return !h.isOpen(two) })
	second.Store(nil)
	closeAll(listener, taken[one])
	h.waitFor("the removed socket is closed", func() bool { return !h.isOpen(one) })
	end()
}

func TestClientReconnectsToLaterStore(t *testing.T) {
	h := newHarness(t)
	address, file := h.newSocket()
	client, _ := h.newClient()
	client.Store(map[netip.AddrPort]*os.File{address: file})
	if files := fdstore.Take(h.path, slog.New(slog.DiscardHandler)); len(files) > 0 {
		t.Fatalf("got %v without a store", files)
	}
	for range 2 {
		end := h.startStore()
		closeAll(h.waitTaken(1)[address])
		end()
	}
}

func TestInvalidMessagesDoNotStopStore(t *testing.T) {
	h := newHarness(t)
	end := h.startStore()
	defer end()
	for _, text := range []string{"", "x", `{"verb":"keep","address":"127.0.0.1:1"}`, `{"verb":"kept"}`, `{"verb":1}`} {
		var conn net.Conn
		h.waitFor("the store accepts a connection", func() (ok bool) {
			var err error
			conn, err = (&net.Dialer{}).DialContext(t.Context(), "unixpacket", h.path)
			return err == nil
		})
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
	address, file := h.newSocket()
	client, _ := h.newClient()
	client.Store(map[netip.AddrPort]*os.File{address: file})
	closeAll(h.waitTaken(1)[address])
}
