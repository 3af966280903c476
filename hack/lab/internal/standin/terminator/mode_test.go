package terminator

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRefuseClosesTheListenerAndConnections(t *testing.T) {
	b := newBench(t)
	live := b.mustDial(t, nil)
	if _, err := greeted(live); err != nil {
		t.Fatal(err)
	}
	b.mode(t, Refuse)
	if n, err := live.Read(make([]byte, 1)); err == nil {
		t.Errorf("live connection read %d bytes", n)
	}
	if _, err := b.dial(b.until, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("new connection: %v, want refused", err)
	}
	b.mode(t, OK)
	exchangeOnNewConnection(t, b)
}

func exchangeOnNewConnection(t *testing.T, b *bench) {
	t.Helper()
	conn := b.mustDial(t, nil)
	if _, err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "as before")
}

func TestResetResetsNewAndOpenConnections(t *testing.T) {
	b := newBench(t)
	live := b.mustDial(t, nil)
	if _, err := greeted(live); err != nil {
		t.Fatal(err)
	}
	b.mode(t, Reset)
	if _, err := live.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("live connection: %v, want a reset", err)
	}
	if _, err := b.dial(b.until, nil); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("new connection: %v, want a reset", err)
	}
	b.mode(t, OK)
	exchangeOnNewConnection(t, b)
}

// wantSilence wants that for a moment no byte arrives, and not the end of the connection either.
func wantSilence(t *testing.T, conn *tls.Conn) {
	t.Helper()
	raw := conn.NetConn()
	_ = raw.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := raw.Read(make([]byte, 1))
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	_ = raw.SetReadDeadline(time.Now().Add(time.Minute))
}

func TestDropIgnoresNewAndOpenConnections(t *testing.T) {
	b := newBench(t)
	live, idle := b.mustDial(t, nil), b.mustDial(t, nil)
	for _, conn := range []*tls.Conn{live, idle} {
		if _, err := greeted(conn); err != nil {
			t.Fatal(err)
		}
	}
	b.mode(t, Drop)
	if _, err := io.WriteString(live, "unanswered"); err != nil {
		t.Fatal(err)
	}
	wantSilence(t, live)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.dial(short, nil); !is[net.Error](err) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("new connection: %v, want no answer", err)
	}
	_ = idle.Close() // its end vanishes too
	if open := b.target.Status().Open; open != 2 {
		t.Errorf("%d connections open, want the 2 opened before", open)
	}
	b.mode(t, OK)
	answer := make([]byte, len("unanswered"))
	if _, err := io.ReadFull(live, answer); err != nil || string(answer) != "unanswered" {
		t.Errorf("after the black hole: %q, %v; want what was sent", answer, err)
	}
	exchangeOnNewConnection(t, b)
}

func TestRefuseAfterDropClosesConnections(t *testing.T) {
	b := newBench(t)
	live := b.mustDial(t, nil)
	if _, err := greeted(live); err != nil {
		t.Fatal(err)
	}
	b.mode(t, Drop)
	b.mode(t, Refuse)
	if _, err := live.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("live connection: %v, want its end", err)
	}
	b.mode(t, OK)
	exchangeOnNewConnection(t, b)
}

func TestSilentAcceptsTLSAndAnswersNothing(t *testing.T) {
	b := newBench(t)
	live := b.mustDial(t, nil)
	if _, err := greeted(live); err != nil {
		t.Fatal(err)
	}
	b.mode(t, Silent)
	fresh := b.mustDial(t, nil)
	for _, conn := range []*tls.Conn{live, fresh} {
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	wantSilence(t, live)
	b.mode(t, OK)
	if _, err := greeted(fresh); err != nil {
		t.Errorf("after the silence: %v", err)
	}
	answer := make([]byte, len("hello"))
	if _, err := io.ReadFull(live, answer); err != nil {
		t.Errorf("after the silence: %v", err)
	}
}

func TestUnknownModeIsAnError(t *testing.T) {
	if err := newBench(t).target.SetMode(t.Context(), "odd"); err == nil || !strings.Contains(err.Error(), "ok, refuse, reset, drop, silent") {
		t.Errorf("got %v, want what is allowed", err)
	}
}

func TestStopEndsStalledConnections(t *testing.T) {
	for _, mode := range []Mode{Drop, Silent} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			if _, err := greeted(b.mustDial(t, nil)); err != nil {
				t.Fatal(err)
			}
			b.mode(t, mode)
			b.target.Stop()
			if open := b.target.Status().Open; open != 0 {
				t.Errorf("%d connections open", open)
			}
		})
	}
}
