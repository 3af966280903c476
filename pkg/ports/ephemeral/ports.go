// Package ephemeral parses the settings of a node's ephemeral ports, which the kernel assigns to
// sockets without a port of their own. A tunnel's port must not be one of them, because another
// process may have it when the tunnel is to listen.
package ephemeral

import (
	"fmt"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Ports are the ephemeral ports of a node. The zero Ports contains none.
type Ports struct {
	Range    ports.Span
	Reserved []ports.Span // exceptions from Range
}

// Parse parses the values of net.ipv4.ip_local_port_range and net.ipv4.ip_local_reserved_ports.
func Parse(portRange, reserved string) (Ports, error) {
	fields := strings.Fields(portRange)
	if len(fields) != 2 {
		return Ports{}, fmt.Errorf("ip_local_port_range is %.40q: want two ports", portRange)
	}
	span, err := spanOf(fields[0], fields[1])
	if err != nil {
		return Ports{}, fmt.Errorf("ip_local_port_range is %.40q: %w", portRange, err)
	}
	parsed := Ports{Range: span}
	for item := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		if item == "" {
			continue // nothing is reserved
		}
		first, last, found := strings.Cut(item, "-")
		if !found {
			last = first
		}
		if span, err = spanOf(first, last); err != nil {
			return Ports{}, fmt.Errorf("ip_local_reserved_ports has %.40q: %w", item, err)
		}
		parsed.Reserved = append(parsed.Reserved, span)
	}
	return parsed, nil
}

func spanOf(first, last string) (ports.Span, error) {
	from, noFirst := strconv.Atoi(first)
	to, noLast := strconv.Atoi(last)
	if noFirst != nil || noLast != nil || from < 0 || to < from || to > wellknown.MaxPort {
		return ports.Span{}, fmt.Errorf("want ports up to %d, the lower one first", wellknown.MaxPort)
	}
	return ports.Span{First: max(from, 1), Last: to}, nil // port 0 is never assigned
}

// Contains reports whether the kernel may assign the port.
func (p Ports) Contains(port int) bool {
	for _, reserved := range p.Reserved {
		if reserved.Contains(port) {
			return false
		}
	}
	return p.Range.Contains(port)
}
