package ports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Range is where new ports come from. Ports that were assigned before may be outside.
type Range struct {
	Base      int
	Count     int
	Reserved  []int // ports that other processes on the nodes have
	NodePorts Span  // of the cluster's services; kube-proxy takes them on every node
}

// Span is the ports from First to Last; the zero Span has none.
type Span struct{ First, Last int }

// ParseSpan parses first-last, the form of kube-apiserver's --service-node-port-range.
func ParseSpan(text string) (Span, error) {
	first, last, found := strings.Cut(text, "-")
	from, noFirst := strconv.Atoi(first)
	to, noLast := strconv.Atoi(last)
	if !found || noFirst != nil || noLast != nil || from < 1 || to < from || to > wellknown.MaxPort {
		return Span{}, fmt.Errorf("want first-last, both from 1 to %d, as %d-%d",
			wellknown.MaxPort, wellknown.MinNodePort, wellknown.MaxNodePort)
	}
	return Span{from, to}, nil
}

func (s Span) String() string { return fmt.Sprintf("%d-%d", s.First, s.Last) }

// Contains reports whether the port is one of the span.
func (s Span) Contains(port int) bool { return 0 < s.First && s.First <= port && port <= s.Last }

// Check returns an error that says what is allowed unless the range can give ports.
func (r Range) Check() error {
	last := r.Base + r.Count - 1
	if r.Base < wellknown.MinPort || r.Count < 1 || last > wellknown.MaxPort || last < r.Base {
		return fmt.Errorf("%d ports from %d on: want 1 or more, all of them from %d to %d",
			r.Count, r.Base, wellknown.MinPort, wellknown.MaxPort)
	}
	for port := r.Base; port <= last; port++ {
		if r.Gives(port) {
			return nil
		}
	}
	return fmt.Errorf("ports %d to %d: want some that are neither %d (NFS), %d (the node agent), "+
		"%s (NodePort services) nor reserved", r.Base, last, wellknown.NFSPort,
		wellknown.AgentHTTPPort, r.NodePorts)
}

// Gives reports whether a new target may get the port.
func (r Range) Gives(port int) bool {
	return r.Base <= port && port < r.Base+r.Count && !r.NodePorts.Contains(port) && r.allows(port)
}

// allows reports whether a target may have the port because a volume has it or it is pinned.
func (r Range) allows(port int) bool {
	return 1 <= port && port <= wellknown.MaxPort && port != wellknown.NFSPort &&
		port != wellknown.AgentHTTPPort && !slices.Contains(r.Reserved, port)
}
