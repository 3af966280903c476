package terminator

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestDelayHoldsBackEachDirection(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, nil)
	if _, err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	const delay = 50 * time.Millisecond
	if err := b.target.SetDelay(delay); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	exchange(t, conn, "there and back")
	if took := time.Since(begun); took < 2*delay {
		t.Errorf("a round trip took %s, want at least %s", took, 2*delay)
	}
	if got := b.target.Status().Delay; got != delay {
		t.Errorf("the status has the delay %s, want %s", got, delay)
	}
	if err := b.target.SetDelay(0); err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "as before")
}

// TestDelayLimitsNoThroughput sends a thousand records, which would take 20 s if each waited for the one before.
func TestDelayLimitsNoThroughput(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, nil)
	if _, err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	const records, record, delay = 1000, 16 << 10, 20 * time.Millisecond
	if err := b.target.SetDelay(delay); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	go func() { _, _ = conn.Write(make([]byte, records*record)) }()
	if _, err := io.CopyN(io.Discard, conn, records*record); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > records*delay/2 {
		t.Errorf("%d records took %s", records, took)
	}
}

func TestDelayEndsWithItsConnection(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, nil)
	if _, err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	if err := b.target.SetDelay(time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "never answered"); err != nil {
		t.Fatal(err)
	}
	b.target.Stop()
	if open := b.target.Status().Open; open != 0 {
		t.Errorf("%d connections open", open)
	}
}

func TestNegativeDelayIsAnError(t *testing.T) {
	if err := newBench(t).target.SetDelay(-time.Second); err == nil || !strings.Contains(err.Error(), "-1s is less than 0s") {
		t.Errorf("got %v, want what is allowed", err)
	}
}
