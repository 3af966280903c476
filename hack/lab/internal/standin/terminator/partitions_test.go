package terminator

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// greeting is the call that asks for the partition of a connection.
func greeting(xid uint32, client string) []byte {
	b := append(words(0, xid, 0, 2, bindProgram, 1, bindProcedure, 0, 0, 0, 0, 16), client[:16]...)
	b = append(b, words(8, 0, 1)...)
	copy(b, words(uint32(len(b)-markBytes)|lastFragment))
	return b
}

// ask returns the kind of the answer, the partition, and the numbers.
func ask(t *testing.T, conn io.ReadWriter, client string) (kind, partition uint32, numbers []byte) {
	t.Helper()
	if _, err := conn.Write(greeting(7, client)); err != nil {
		t.Fatal(err)
	}
	mark := make([]byte, markBytes)
	if _, err := io.ReadFull(conn, mark); err != nil {
		t.Fatal(err)
	}
	m := make([]byte, word(mark, 0)&^lastFragment)
	if _, err := io.ReadFull(conn, m); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m[:24], words(7, 1, 0, 0, 0, 0)) {
		t.Fatalf("the answer begins with %x", m[:24])
	}
	return word(m, 24), word(m, 28), m[len(m)-16:]
}

const clientA, clientB = "client A........", "client B........"

// text is a request of some kind that is no greeting.
const text = "any other request of a client"

func TestRequestsWorkOnOnePartitionOnly(t *testing.T) {
	b := newBench(t)
	if err := b.target.SetPartitions(Partitions{Count: 3, Answer: AnswerReady, Lanes: 5, BytesPerSecond: 9}); err != nil {
		t.Fatal(err)
	}
	home := uint32(0)
	for i := range 6 {
		conn := b.mustDial(t, nil)
		kind, partition, numbers := ask(t, conn, clientA)
		if kind != 3 || !bytes.Equal(numbers, words(5, 9, 1, 1)) {
			t.Fatalf("the answer is of kind %d, with the numbers %x", kind, numbers)
		}
		if i == 0 {
			home = partition
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if name, err := nameOf(conn); (err == nil && name == "root") != (partition == home) {
			t.Errorf("connection %d to partition %d, of a client of %d: got %q, %v", i, partition, home, name, err)
		}
	}
	if s := b.target.Status(); s.Wrong != 4 {
		t.Errorf("%d connections came to a wrong partition, want 4", s.Wrong)
	}
	conn := b.mustDial(t, nil)
	ask(t, conn, clientB)
	exchangeAfterName(t, conn)
}

func TestPartitionsAreNotNamedOnDemand(t *testing.T) {
	b := newBench(t)
	for answer, want := range map[Answer]uint32{AnswerRetry: 0, AnswerRetryLater: 1, AnswerError: 4} {
		if err := b.target.SetPartitions(Partitions{Count: 1, Answer: answer, Lanes: 5, BytesPerSecond: 9}); err != nil {
			t.Fatal(err)
		}
		conn := b.mustDial(t, nil)
		if kind, _, numbers := ask(t, conn, clientA); kind != want || !bytes.Equal(numbers, words(5, 9, 1, 1)) {
			t.Errorf("%s: the answer is of kind %d, with the numbers %x", answer, kind, numbers)
		}
		exchangeAfterName(t, conn)
	}
	if err := b.target.SetPartitions(Partitions{Count: 1, Answer: "perhaps"}); err == nil {
		t.Error("an unknown answer was taken")
	}
}

// TestClientsWithoutGreetingAreServed, also those that end before their first record is whole.
func TestClientsWithoutGreetingAreServed(t *testing.T) {
	b := newBench(t)
	if err := b.target.SetPartitions(Partitions{Count: 3, Answer: AnswerReady}); err != nil {
		t.Fatal(err)
	}
	conn := b.mustDial(t, nil)
	exchangeAfterName(t, conn)
	short := b.mustDial(t, nil)
	if _, err := io.WriteString(short, "short"); err != nil {
		t.Fatal(err)
	}
	if err := short.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(short); err != nil || string(got) != "root\n"+"short"+"end" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRateLimitsEachConnection(t *testing.T) {
	b := newBench(t)
	if err := b.target.SetRate(100_000); err != nil {
		t.Fatal(err)
	}
	conn := b.mustDial(t, nil)
	if _, err := nameOf(conn); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	go func() { _, _ = conn.Write(make([]byte, 50_000)) }()
	if _, err := io.ReadFull(conn, make([]byte, 50_000)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("50 kB took %s at 100 kB/s", took)
	}
	if err := b.target.SetRate(-1); err == nil || errors.Is(err, io.EOF) {
		t.Error("a negative rate was taken")
	}
}

func TestIdleTimeIsNoCredit(t *testing.T) {
	opened := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	now := opened.Add(time.Hour)
	first := paced(opened, now, 1000, 1000)
	second := paced(first, now, 500, 1000)
	if first != now.Add(time.Second) || second != now.Add(1500*time.Millisecond) {
		t.Errorf("1000 bytes end at %s, 500 more at %s; want 1 s and 1.5 s after %s", first, second, now)
	}
}

// nameOf reads the name of the server, and nothing else.
func nameOf(conn io.Reader) (string, error) {
	name := make([]byte, len("root\n"))
	_, err := io.ReadFull(conn, name)
	return string(bytes.TrimSpace(name)), err
}

func exchangeAfterName(t *testing.T, conn io.ReadWriter) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	want := "root\n" + text
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}
