package supervise

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// mostComplaints bounds the words kept of one start or reload; the first say the cause.
	mostComplaints = 3
	// mostConns bounds the connections that are followed; NFS has one or two.
	mostConns = 64
)

// configurationFailed ends what stunnel says while it refuses a configuration.
const configurationFailed = "Configuration failed"

// hear learns from a line of the process' log.
func (t *tunnel) hear(l line, c classifier, now time.Time) {
	if l.thread == mainThread {
		t.hearMain(l, now)
		return
	}
	t.problems.hearConnection(l, c, now)
}

// hearMain follows starts and reloads.
func (t *tunnel) hearMain(l line, now time.Time) {
	switch {
	case strings.HasPrefix(l.text, "Reading configuration from"):
		t.complaints = nil
	case l.text == "Configuration successful":
		t.configurationTaken(now)
	case strings.HasPrefix(l.text, "Service [") && strings.Contains(l.text, " bound to "):
		// The end of a reload. A start ends a little later, when signals are handled.
		if t.phase == phaseReloading {
			t.inForce()
		}
	case strings.HasPrefix(l.text, "Accepting new connections"):
		if t.phase == phaseStarting {
			t.inForce()
		}
	case l.text == configurationFailed:
		t.configurationRefused(now)
	case l.severity <= severityError:
		if len(t.complaints) < mostComplaints {
			t.complaints = append(t.complaints, l.text)
		}
	}
}

func (t *tunnel) configurationTaken(now time.Time) {
	if t.phase != phaseStarting && t.phase != phaseReloading {
		return
	}
	t.accepted = true
	t.deadline = now.Add(settleTime)
	t.good = t.current
	if t.phase == phaseReloading {
		t.good = t.pending
	}
}

// configurationRefused matters to reloads: stunnel goes on with what it had. A start that fails
// so ends.
func (t *tunnel) configurationRefused(now time.Time) {
	if t.phase != phaseReloading {
		return
	}
	t.refuse(t.pending, strings.Join(t.complaints, "; "), now)
	t.phase, t.pending = phaseRunning, config{}
}

// hearConnection counts one problem for each connection, the first, which is the cause of those
// that follow. Addresses that could not be connected to count each.
func (p *problems) hearConnection(l line, c classifier, now time.Time) {
	known := p.conns[l.thread]
	switch {
	case strings.HasPrefix(l.text, "s_connect: connected "):
		address, err := netip.ParseAddrPort(bracketed(strings.TrimPrefix(l.text, "s_connect: connected ")))
		if err == nil && len(p.conns) < mostConns {
			p.conns[l.thread] = conn{server: address, told: known.told}
		}
	case strings.HasPrefix(l.text, "TLS connected: "):
		p.remote, p.remoteAt, p.connection = known.server, now, nil
		if known.open = known.server.IsValid(); known.open {
			p.conns[l.thread] = known
		}
	case strings.HasPrefix(l.text, "Connection closed") || strings.HasPrefix(l.text, "Connection reset"):
		delete(p.conns, l.thread)
	default:
		p.notice(l, c.reason(l.text), now)
	}
}

func (p *problems) notice(l line, reason Reason, now time.Time) {
	if reason == "" {
		return
	}
	known := p.conns[l.thread]
	if !strings.HasPrefix(l.text, "s_connect: ") {
		if known.told {
			return
		}
		known.told = true
		if len(p.conns) < mostConns {
			p.conns[l.thread] = known
		}
	}
	p.connection = &Problem{Reason: reason, Words: l.text, At: now}
	p.counts[reason]++
}

// servers are those that connections are open to.
func (p *problems) servers() []netip.AddrPort {
	var servers []netip.AddrPort
	for _, c := range p.conns {
		if c.open && !slices.Contains(servers, c.server) {
			servers = append(servers, c.server)
		}
	}
	slices.SortFunc(servers, netip.AddrPort.Compare)
	return servers
}

// bracketed gives an IPv6 address, which stunnel writes as it reads it, its brackets.
func bracketed(hostPort string) string {
	colon := strings.LastIndexByte(hostPort, ':')
	if colon < 0 || strings.Count(hostPort, ":") == 1 {
		return hostPort
	}
	return "[" + hostPort[:colon] + "]" + hostPort[colon:]
}
