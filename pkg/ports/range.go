package ports

import (
	"fmt"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Range is where new ports come from. Ports that were given before may lie outside.
type Range struct {
	Base     int
	Count    int
	Reserved []int // ports that something else on the nodes has
}

// Check returns an error that says what is allowed unless the range can give ports.
func (r Range) Check() error {
	last := r.Base + r.Count - 1
	if r.Base < wellknown.MinPort || r.Count < 1 || last > wellknown.MaxPort || last < r.Base {
		return fmt.Errorf("%d ports from %d on: want 1 or more, all of them from %d to %d",
			r.Count, r.Base, wellknown.MinPort, wellknown.MaxPort)
	}
	for port := r.Base; port <= last; port++ {
		if r.gives(port) {
			return nil
		}
	}
	return fmt.Errorf("ports %d to %d: want some that are neither %d (NFS), %d (the node agent), "+
		"%d to %d (NodePort services) nor reserved", r.Base, last, wellknown.NFSPort,
		wellknown.AgentHTTPPort, wellknown.MinNodePort, wellknown.MaxNodePort)
}

// gives says whether a new target may get the port.
func (r Range) gives(port int) bool {
	nodePort := wellknown.MinNodePort <= port && port <= wellknown.MaxNodePort
	return r.Base <= port && port < r.Base+r.Count && !nodePort && r.allows(port)
}

// allows says whether a target may have the port when a volume or an administrator says so.
func (r Range) allows(port int) bool {
	return 1 <= port && port <= wellknown.MaxPort && port != wellknown.NFSPort &&
		port != wellknown.AgentHTTPPort && !slices.Contains(r.Reserved, port)
}
