package front_test

import (
	"fmt"
	"testing"
)

// BenchmarkLanes reads from a server that limits each connection to 10 MiB/s: run it with -benchtime 3s.
func BenchmarkLanes(b *testing.B) {
	for _, lanes := range []int{1, 5} {
		b.Run(fmt.Sprintf("%d", lanes), func(b *testing.B) {
			server := partitioned(1)
			server.Rate = 10 << 20
			h := newHarness(b, lanes, server)
			conn := h.dial()
			h.grow(conn, int64(lanes))
			const size = 256 << 10
			b.SetBytes(size)
			b.ResetTimer()
			h.load(conn, 1e6, b.N, 32, 0, size)
		})
	}
}
