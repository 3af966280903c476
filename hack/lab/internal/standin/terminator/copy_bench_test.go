package terminator

import (
	"io"
	"testing"
)

// BenchmarkEcho sends bytes through the mount target and back.
func BenchmarkEcho(b *testing.B) {
	bench := newBench(b)
	conn := bench.mustDial(b, nil)
	if _, err := greeted(conn); err != nil {
		b.Fatal(err)
	}
	const chunk = 1 << 20
	data := make([]byte, chunk)
	b.SetBytes(chunk)
	go func() {
		for range b.N {
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, conn, int64(b.N)*chunk); err != nil {
		b.Fatal(err)
	}
}
