package terminator

import (
	"io"
	"net"
	"testing"
)

func (b *bench) dialPlain(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.until, "tcp", b.target.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if deadline, ok := b.until.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return conn
}

func TestPlainClientsAreServedOnDemand(t *testing.T) {
	b := newBench(t)
	b.target.SetPlain(true)
	plain := b.dialPlain(t)
	exchangePlain(t, plain)
	encrypted := b.mustDial(t, nil)
	if got, err := greeted(encrypted); got != "root" || err != nil {
		t.Errorf("a client of TLS beside it is greeted %q, %v", got, err)
	}
	b.target.SetPlain(false)
	exchange(t, plain, "stays open")
}

// exchangePlain begins as a client of NFS does, with a record mark, and comes after the server's name.
func exchangePlain(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte{0x80, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len("root\n")+4)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "root\n\x80\x00\x00\x01" {
		t.Fatalf("answer %q, %v", answer, err)
	}
}

func TestPlainClientsAreRefusedOtherwise(t *testing.T) {
	b := newBench(t)
	conn := b.dialPlain(t)
	if _, err := conn.Write([]byte("\x80\x00\x00\x28 a call of forty bytes, or more than so")); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(conn); string(answer) == "root\n" {
		t.Error("it reached the server")
	}
	b.await(t, "the refusal", func() bool { return b.target.Status().Refused == 1 })
}
