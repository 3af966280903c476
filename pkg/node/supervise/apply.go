package supervise

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/front"
	"gnuthought.com/efs-stunnel/pkg/program/process"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// apply executes one step and records it in the tunnel.
func (s *supervisor) apply(t *tunnel, next step, now time.Time) {
	switch next.verb {
	case doRemove:
		s.remove(t)
	case doListen:
		s.listen(t, t.desired.Accept, now)
	case doClosePort:
		s.closePort(t)
	case doArm:
		s.arm(t)
	case doStart:
		s.start(t, next.config, now)
	case doReload:
		s.reload(t, next.config, now)
	case doAssumeReady:
		t.configApplied()
	case doStopIdle:
		s.stopIdle(t, now)
	case doStop:
		s.stop(t, now)
	case doKill:
		s.logFor(t).Warn("stunnel did not exit after SIGTERM; killing it")
		s.terminate(t, syscall.SIGKILL, stopGrace, now)
	case doNothing:
	}
}

func (s *supervisor) remove(t *tunnel) {
	if err := s.dir.Config(t.name).Remove(); err != nil {
		s.logFor(t).Warn("removing the configuration file failed", "err", err)
	}
	delete(s.tunnels, t.name)
}

func (s *supervisor) listen(t *tunnel, address netip.AddrPort, now time.Time) {
	l, err := s.open(t, address)
	if err != nil {
		s.recordListenError(t, address, err, now)
		return
	}
	if t.socket != nil {
		s.closeSocket(t)
	}
	t.socketOpened(l)
	s.openLanes(t)
	s.logFor(t).Info("port opened", "port", address.Port())
}

// openLanes puts a front before stunnel. Without one, stunnel accepts the connections itself.
func (s *supervisor) openLanes(t *tunnel) {
	if s.options.Lanes <= 1 {
		return
	}
	s.fronts++
	f, err := front.Start(t.socket.file, s.dir.LaneSocket(s.fronts), s.options.Lanes, s.logFor(t))
	if err != nil {
		s.logFor(t).Error("lanes cannot be opened; each mount has one connection", "err", err)
		return
	}
	f.SetPinned(t.desired.Lanes)
	t.front = f
}

// open opens the port, or takes over the socket of an earlier supervisor of this pod.
func (s *supervisor) open(t *tunnel, address netip.AddrPort) (*listener, error) {
	if err := s.takeFromOthers(t, address); err != nil {
		return nil, err
	}
	if file, ok := s.inherited[address]; ok {
		delete(s.inherited, address)
		l, err := adopt(file, address)
		if err == nil {
			return l, nil
		}
		s.options.Log.Warn("taking over a socket of an earlier supervisor failed", "err", err)
	}
	return listen(address)
}

// takeFromOthers closes the socket that another tunnel has at an address. It returns an error if that
// tunnel is to listen there, too: the kernel would spread the connections over two file systems. A
// tunnel that is removed or moves to another port must not keep this one, or two tunnels could never
// swap their ports.
func (s *supervisor) takeFromOthers(t *tunnel, address netip.AddrPort) error {
	for _, other := range s.tunnels {
		switch {
		case other == t || other.socket == nil || other.socket.address != address:
		case other.desired.Accept == address:
			return fmt.Errorf("tunnel %s listens on %s: %w", other.name, address, unix.EADDRINUSE)
		default:
			s.closeSocket(other)
		}
	}
	return nil
}

func (s *supervisor) recordListenError(t *tunnel, address netip.AddrPort, err error, now time.Time) {
	switch {
	case !errors.Is(err, unix.EADDRINUSE):
		t.setProcessProblem(tunnelspec.ReasonStartFailed, err.Error(), now)
		t.listenAt = now.Add(writeRetry)
		s.logFor(t).Error("opening the port failed", "port", address.Port(), "err", err)
	case t.portTaken(err.Error(), now):
		s.logFor(t).Error("port is in use", "port", address.Port(), "reason", string(tunnelspec.ReasonPortTaken), "err", err)
	}
}

func (s *supervisor) closeSocket(t *tunnel) {
	s.connWatcher.remove(t.stunnelSocket())
	err := t.socket.shutdown()
	if t.front != nil {
		err = errors.Join(err, t.front.Close())
	}
	if err != nil {
		s.logFor(t).Warn("closing the port failed", "port", t.socket.address.Port(), "err", err)
	}
	t.socketClosed()
}

func (s *supervisor) closePort(t *tunnel) {
	log := s.logFor(t).With("port", t.socket.address.Port())
	if t.desired.isSet() {
		log.Warn("port closed until the next start of stunnel", "requeueAfter", process.RestartDelay(t.deaths))
	}
	s.closeSocket(t)
}

// arm waits for the next connection. Without a working epoll, it lets stunnel start at once.
func (s *supervisor) arm(t *tunnel) {
	if err := s.connWatcher.arm(t.stunnelSocket()); err != nil {
		s.logFor(t).Warn("waiting for connections failed; starting stunnel at once", "err", err)
		t.connectionWaiting()
		return
	}
	t.armed = true
}

// writeConfig reports whether the configuration file was written.
func (s *supervisor) writeConfig(t *tunnel, c config, now time.Time) bool {
	text, err := stunnelcfg.Render(c.Tunnel, s.features, s.options.FIPS)
	if err == nil {
		err = s.dir.Config(t.name).Write(text)
	}
	if err != nil {
		t.setProcessProblem(tunnelspec.ReasonStartFailed, err.Error(), now)
		t.retryAt = now.Add(writeRetry)
		s.logFor(t).Error("writing the configuration file failed", "err", err)
		return false
	}
	return true
}

func (s *supervisor) start(t *tunnel, c config, now time.Time) {
	if !s.writeConfig(t, c, now) {
		return
	}
	serial := t.starts + 1
	line := func(text string) { s.send(t, serial, func(now time.Time) { s.handleOutput(t, text, now) }) }
	exited := func(status string) { s.send(t, serial, func(now time.Time) { s.handleExit(t, status, now) }) }
	p, err := s.startProcess(s.dir.Config(t.name).Path(), t.stunnelSocket(), line, exited)
	if err != nil {
		t.died(tunnelspec.ReasonStartFailed, err.Error(), now)
		s.logFor(t).Error("starting stunnel failed", "err", err)
		return
	}
	t.started(p, c, now)
	s.logFor(t).Info("stunnel started", "port", c.Accept.Port())
}

func (s *supervisor) reload(t *tunnel, c config, now time.Time) {
	if !s.writeConfig(t, c, now) {
		return
	}
	t.reloading(c, now)
	_ = t.proc.Signal(syscall.SIGHUP) // see terminate
	s.logFor(t).Info("reloading stunnel", "port", c.Accept.Port())
}

func (s *supervisor) stop(t *tunnel, now time.Time) {
	grace, log := stopGrace, s.logFor(t)
	switch {
	case s.closing:
		grace = s.options.StopGrace
	case !t.desired.isSet():
		log.Info("stopping stunnel of a removed tunnel")
	case t.phase != phaseRunning:
		t.setProcessProblem(tunnelspec.ReasonUnresponsive, fmt.Sprintf("no answer after %s", answerTimeout), now)
		log.Error("stunnel does not respond; restarting it", "reason", string(tunnelspec.ReasonUnresponsive))
	case t.isExhausted(now):
		log.Error("stunnel rejects connections; restarting it", "reason", string(tunnelspec.ReasonExhausted))
	default:
		log.Info("restarting stunnel as the specification requests")
	}
	s.terminate(t, syscall.SIGTERM, grace, now)
}

// stopIdle stops an idle stunnel, unless a client has connected since clients were last counted.
func (s *supervisor) stopIdle(t *tunnel, now time.Time) {
	s.countClients(now)
	if plan(t, now).verb != doStopIdle {
		return
	}
	t.stoppingIdle()
	s.logFor(t).Info("stopping idle stunnel", "duration", t.idle)
	s.terminate(t, syscall.SIGTERM, stopGrace, now)
}

func (s *supervisor) terminate(t *tunnel, signal syscall.Signal, grace time.Duration, now time.Time) {
	// An error says that the process has exited, which the starter reports, too.
	_ = t.proc.Signal(signal)
	t.stopping(grace, now)
}

const (
	clientsInterval = 5 * time.Second // the time between two counts of client connections
	// handOverInterval is the time between two checks for another supervisor that listens: both
	// receive new connections until this one stops listening.
	handOverInterval = 100 * time.Millisecond
)

// checkClients updates which tunnels are in use, when a check is due.
func (s *supervisor) checkClients(now time.Time) {
	if !now.Before(s.clientsAt) {
		s.countClients(now)
	}
}

// countClients updates which tunnels are in use, at most once for each time.
func (s *supervisor) countClients(now time.Time) {
	next := now.Add(clientsInterval)
	if s.clientsAt.Equal(next) {
		return
	}
	s.clientsAt = next
	clients, err := s.options.Clients()
	if err != nil && !s.clientsUnknown {
		s.options.Log.Warn("listing client connections failed; idle stunnel processes are not stopped", "err", err)
	}
	s.clientsUnknown = err != nil
	for _, t := range s.tunnels {
		if t.socket != nil {
			t.updateIdle(clients[t.socket.address], err == nil, now)
		}
	}
}

// closeTunnels closes, during the shutdown, each tunnel that another supervisor listens for or that
// has no clients, and all of them when DrainTimeout has passed. A tunnel whose clients are unknown counts
// as used. closeTunnels closes the port before stunnel stops, so that clients reconnect to the other
// supervisor.
func (s *supervisor) closeTunnels(now time.Time) {
	if !s.closing || now.Before(s.closeAt) {
		return
	}
	s.closeAt = now.Add(handOverInterval)
	clients, err := s.options.Clients()
	listeners, _ := s.options.Listening() // on an error, no successor counts as known
	over := !now.Before(s.closeBy)
	for _, t := range s.tunnels {
		if t.closing || t.socket == nil {
			t.close()
			continue
		}
		address := t.socket.address
		hasSuccessor := slices.ContainsFunc(listeners[address], func(inode uint32) bool { return inode != t.socket.inode })
		if hasSuccessor {
			s.logFor(t).Info("tunnel handed over to another supervisor", "port", address.Port())
		}
		if over || hasSuccessor || err == nil && clients[address] == 0 {
			s.closeSocket(t)
			t.close()
		}
	}
}
