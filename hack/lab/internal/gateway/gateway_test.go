package gateway

import (
	"fmt"
	"io"
	"net"
	"testing"
)

func TestForwardClosesEachDirectionSeparately(t *testing.T) {
	server, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		c, err := server.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		question, _ := io.ReadAll(c) // ends only if the client's end arrives
		fmt.Fprintf(c, "you said %s", question)
	}()
	inner, outer := connect(t)
	go forward(t.Context(), inner, server.Addr().String(), nil)
	if _, err := io.WriteString(outer, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := outer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(outer)
	if err != nil || string(answer) != "you said hello" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestListenFailsOnAPortInUse(t *testing.T) {
	f, port, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := Listen(port); err == nil {
		t.Errorf("port %d was opened twice", port)
	}
}

// connect gives the two ends of a TCP connection.
func connect(t *testing.T) (inner net.Conn, outer *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("unexpected address %v", l.Addr())
	}
	outer, err = net.DialTCP("tcp", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	inner, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return inner, outer
}
