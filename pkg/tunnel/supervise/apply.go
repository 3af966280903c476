package supervise

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// apply does one step, and tells the tunnel.
func (s *supervisor) apply(t *tunnel, next step, now time.Time) {
	switch next.verb {
	case doForget:
		s.forget(t)
	case doListen:
		s.listen(t, t.want.Accept, now)
	case doLetGo:
		s.letGo(t)
	case doArm:
		s.arm(t)
	case doStart:
		s.start(t, next.config, now)
	case doReload:
		s.reload(t, next.config, now)
	case doSettle:
		t.inForce()
	case doRest:
		t.rests()
		s.logOf(t).Info("stunnel stops: nobody has used the tunnel for a while", "duration", t.idle)
		t.proc.Signal(syscall.SIGTERM)
		t.stopping(stopGrace, now)
	case doStop:
		s.stop(t, now)
	case doKill:
		s.logOf(t).Warn("stunnel did not end when asked; killing it")
		t.proc.Signal(syscall.SIGKILL)
		t.stopping(stopGrace, now)
	case doNothing:
	}
}

func (s *supervisor) forget(t *tunnel) {
	if err := s.dir.RemoveConfig(t.name); err != nil {
		s.logOf(t).Warn("configuration file cannot be removed", "err", err)
	}
	delete(s.tunnels, t.name)
}

// listen opens the port, or takes the socket that an earlier supervisor of this pod had open.
func (s *supervisor) listen(t *tunnel, address netip.AddrPort, now time.Time) {
	l := s.takeKept(address)
	if l == nil {
		var err error
		if l, err = listen(address); err != nil {
			s.cannotListen(t, address, err, now)
			return
		}
	}
	if t.socket != nil {
		s.closeSocket(t)
	}
	t.listens(l)
	s.logOf(t).Info("port is open", "port", address.Port())
}

func (s *supervisor) cannotListen(t *tunnel, address netip.AddrPort, err error, now time.Time) {
	switch {
	case !errors.Is(err, unix.EADDRINUSE):
		t.cannotListen(err.Error(), now)
		s.logOf(t).Error("port cannot be opened", "port", address.Port(), "err", err)
	case t.portTaken(err.Error(), now):
		s.logOf(t).Error("port of the tunnel is taken", "port", address.Port(), "reason", string(ReasonPortTaken))
	}
}

func (s *supervisor) closeSocket(t *tunnel) {
	s.arrivals.forget(t.socket)
	if err := t.socket.shutdown(); err != nil {
		s.logOf(t).Warn("port cannot be closed", "port", t.socket.address.Port(), "err", err)
	}
	t.letGo()
}

func (s *supervisor) letGo(t *tunnel) {
	log := s.logOf(t).With("port", t.socket.address.Port())
	if t.want.exists() {
		log.Warn("port is closed, as stunnel cannot be started; it is tried again", "requeueAfter", restartDelay(t.deaths))
	}
	s.closeSocket(t)
}

// arm falls back on running stunnel at once.
func (s *supervisor) arm(t *tunnel) {
	if err := s.arrivals.arm(t.socket); err != nil {
		s.logOf(t).Warn("connections cannot be waited for; starting stunnel at once", "err", err)
		t.arrived()
		return
	}
	t.armed = true
}

// write renders the configuration of a tunnel to where its process reads it.
func (s *supervisor) write(t *tunnel, c config, now time.Time) bool {
	text, err := stunnelcfg.Render(c.Tunnel, s.features)
	if err == nil {
		err = s.dir.WriteConfig(t.name, text)
	}
	if err != nil {
		t.notWritten(err.Error(), now)
		s.logOf(t).Error("configuration file cannot be written", "err", err)
		return false
	}
	return true
}

func (s *supervisor) start(t *tunnel, c config, now time.Time) {
	if !s.write(t, c, now) {
		return
	}
	serial := t.starts + 1
	out := &splitter{emit: func(text string) { s.events <- event{tunnel: t, start: serial, line: text} }}
	ended := func(how string) {
		out.flush()
		s.events <- event{tunnel: t, start: serial, how: how}
	}
	p, err := s.runner.Start(s.dir.ConfigFile(t.name), t.socket.file, out, ended)
	if err != nil {
		t.startFailed(err.Error(), now)
		s.logOf(t).Error("stunnel cannot be started", "err", err)
		return
	}
	t.started(p, c, now)
	s.logOf(t).Info("stunnel started", "port", c.Accept.Port())
}

func (s *supervisor) reload(t *tunnel, c config, now time.Time) {
	if !s.write(t, c, now) {
		return
	}
	t.reloading(c, now)
	t.proc.Signal(syscall.SIGHUP)
	s.logOf(t).Info("stunnel reloads", "port", c.Accept.Port())
}

func (s *supervisor) stop(t *tunnel, now time.Time) {
	grace, log := stopGrace, s.logOf(t)
	switch {
	case s.closing:
		grace = s.options.StopGrace
	case !t.want.exists():
		log.Info("stunnel stops: its target is gone")
	case t.phase != phaseRunning:
		words := fmt.Sprintf("no answer after %s", max(startLimit, reloadLimit))
		t.processProblem(ReasonUnresponsive, words, now)
		log.Error("stunnel hangs; restarting it", "reason", string(ReasonUnresponsive))
	default:
		log.Info("stunnel restarts, as the agent asks for")
	}
	t.proc.Signal(syscall.SIGTERM)
	t.stopping(grace, now)
}
