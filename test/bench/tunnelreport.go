package main

import (
	"fmt"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/test/bench/nfsops"
)

// What a tunnel may add to an operation: this time, or this share of what the operation takes without it.
const (
	tunnelMore  = 150 * time.Microsecond
	tunnelShare = 0.1
)

// tunnelTables has a table of operations, and one of bytes.
func tunnelTables(all []tunnelCost) string {
	if len(all) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("| added round trip | operation | p50 through the tunnel | plain | more | target | | p99 through the tunnel | plain | requests each |\n" +
		"|---|---|--:|--:|--:|--:|---|--:|--:|--:|\n")
	for _, cost := range all {
		for _, o := range cost.Operations {
			text.WriteString(operationLine(cost.RoundTrip, o))
		}
	}
	text.WriteString("\n| added round trip | bytes | MiB/s through the tunnel | plain | processor seconds for each GiB through the tunnel | plain |\n|---|---|--:|--:|--:|--:|\n")
	for _, cost := range all {
		for _, s := range cost.Streams {
			tunnel, plain := s.Mounts[0], s.Mounts[1]
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", milliseconds(cost.RoundTrip), s.Name, number(rate(tunnel)), number(rate(plain)),
				number(perGiB(tunnel)), number(perGiB(plain)))
		}
	}
	return text.String()
}

func operationLine(roundTrip time.Duration, o nfsops.Operation) string {
	tunnel, plain := o.Mounts[0], o.Mounts[1]
	more := (tunnel.P50 - plain.P50).Seconds() * 1000
	allowed := target{max(tunnelMore.Seconds(), tunnelShare*plain.P50.Seconds()) * 1000, atMost}
	return fmt.Sprintf("| %s | %s | %s | %s | %.2f ms | %.2f ms | %s | %s | %s | %.1f, %.1f |\n", milliseconds(roundTrip), o.Name,
		milliseconds(tunnel.P50), milliseconds(plain.P50), more, allowed.limit, allowed.mark(more),
		milliseconds(tunnel.P99), milliseconds(plain.P99), tunnel.Requests, plain.Requests)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
}

func rate(f nfsops.Flow) float64 { return float64(f.Bytes) / (1 << 20) / f.Seconds }

func perGiB(f nfsops.Flow) float64 { return f.Processor / float64(f.Bytes) * (1 << 30) }
