package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// otherPort is a port that another pod of this node listens on.
type otherPort struct {
	result *probe.Result // of the latest probe; nil before the first
	usedAt time.Time     // when it last had clients
}

// observePredecessor records the ports on which another pod of this node listens, until this pod is ready. The
// sockets of this pod are those that its supervisor reports.
func (a *Agent) observePredecessor(now time.Time) {
	before := a.predecessor
	a.predecessor = map[netip.AddrPort]otherPort{}
	if a.wasReady() {
		return
	}
	listeners, err := a.options.Listening()
	if a.listeningErr.isNew(err) {
		a.options.Log.Warn("listening sockets of this node cannot be listed, so this pod becomes ready whatever the pod before it serves", "err", err)
	}
	own := map[netip.AddrPort]int{}
	for _, t := range a.status.Tunnels {
		if address, err := netip.ParseAddrPort(t.Accept); err == nil {
			own[address] = 1
		}
	}
	for address, inodes := range listeners {
		if address == loopback(int(address.Port())) && len(inodes) > own[address] &&
			!slices.Contains(a.options.Routing.Reserved, int(address.Port())) {
			other := before[address]
			if a.hasClients(int(address.Port())) {
				other.usedAt = now
			}
			a.predecessor[address] = other
		}
	}
}

func loopback(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(wellknown.LoopbackAddress), uint16(port))
}

// inability is why this pod cannot serve a port.
type inability struct{ tunnel, reason string }

// inabilities returns why this pod cannot serve ports of the predecessor; it has none of those that it can. A port
// that the table does not have counts only while it is used: the predecessor closes it soon.
func (a *Agent) inabilities() map[netip.AddrPort]inability {
	found := map[netip.AddrPort]inability{}
	for address, other := range a.predecessor {
		if time.Since(other.usedAt) < inUseFor {
			found[address] = inability{"port " + strconv.Itoa(int(address.Port())), "no target of the table has the port"}
		}
	}
	set := func(port int, tunnel, reason string) {
		if _, ok := a.predecessor[loopback(port)]; ok {
			found[loopback(port)] = inability{tunnel, reason}
		}
	}
	for _, key := range a.table.Keys() {
		port, _ := a.table.Port(key)
		set(port, routing.Name(key), "it has no tunnel yet")
	}
	for _, t := range a.plan.Unusable {
		set(t.Port, t.Name, string(t.Reason))
	}
	for _, state := range a.tunnels {
		if t := a.snapshotOf(state); t.up && t.inForce {
			delete(found, loopback(state.Port))
		} else {
			set(state.Port, t.name, cmp.Or(strings.Join(t.problems, ", "), "it is not healthy yet"))
		}
	}
	return found
}

// predecessorTasks probes the predecessor where this pod cannot serve. It waits as long as the pod waits for
// its tunnels to become healthy, because a probe makes the predecessor run stunnel for an unused tunnel.
func (a *Agent) predecessorTasks() []probe.Task {
	if len(a.predecessor) == 0 || a.waitsForHealth() {
		return nil
	}
	var tasks []probe.Task
	for address := range a.inabilities() {
		tasks = append(tasks, probe.Task{Name: address.String(), Accept: address, InUse: true})
	}
	return tasks
}

// handlePredecessor records the result of a probe of the predecessor. It returns false for another result.
func (a *Agent) handlePredecessor(result probe.Result) bool {
	if result.Name != result.Accept.String() {
		return false
	}
	if other, listens := a.predecessor[result.Accept]; listens && !result.Late {
		other.result = &result
		a.predecessor[result.Accept] = other
	}
	return true
}

// predecessorError returns why the predecessor must not end yet: it serves what this pod cannot. What neither
// serves is no reason, or an outage of EFS would stop every rollout.
func (a *Agent) predecessorError() error {
	if len(a.predecessor) == 0 {
		return nil
	}
	var served, reasons, unknown []string
	inabilities := a.inabilities()
	for _, address := range slices.SortedFunc(maps.Keys(inabilities), netip.AddrPort.Compare) {
		why := inabilities[address]
		switch r := a.predecessor[address].result; {
		case r == nil:
			unknown = append(unknown, why.tunnel)
		case r.Err == nil || r.Established:
			served = append(served, why.tunnel)
			if !slices.Contains(reasons, why.reason) {
				reasons = append(reasons, why.reason)
			}
		}
	}
	if len(served) > 0 {
		return fmt.Errorf("the pod before this one serves %s, this one cannot: %s", firstFew(served), firstFew(reasons))
	}
	return errorNaming("not known yet whether the pod before this one serves what this one cannot", unknown)
}
