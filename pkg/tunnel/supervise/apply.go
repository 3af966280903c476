package supervise

import (
	"fmt"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// apply does one step, and tells the tunnel.
func (s *supervisor) apply(t *tunnel, next step, now time.Time) {
	switch next.verb {
	case doForget:
		s.forget(t)
	case doLook:
		s.look(t, next.config, now)
	case doStart:
		s.start(t, next.config, now)
	case doReload:
		s.reload(t, next.config, now)
	case doRestore:
		s.write(t, t.current, now)
	case doSettle:
		t.settled(!isFree(t.attempted()))
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
	if err := removeFile(activeFile(s.dir.Prefix(), t.name)); err != nil {
		s.logOf(t).Warn("copy of the configuration cannot be removed", "err", err)
	}
	delete(s.tunnels, t.name)
}

func (s *supervisor) look(t *tunnel, config []byte, now time.Time) {
	if isFree(config) {
		t.portFree(now)
		return
	}
	address := stunnelcfg.Accept(config)
	if t.portTaken(address.String()+": Address already in use", now) {
		s.logOf(t).Error("port of the tunnel is taken", "port", address.Port(), "reason", string(ReasonPortTaken))
	}
}

// isFree leaves a file without an address to stunnel.
func isFree(config []byte) bool {
	address := stunnelcfg.Accept(config)
	return !address.IsValid() || portFree(address)
}

// write has the process find the configuration where it reads it.
func (s *supervisor) write(t *tunnel, config []byte, now time.Time) bool {
	if err := replaceFile(activeFile(s.dir.Prefix(), t.name), config); err != nil {
		t.notWritten(err.Error(), now)
		s.logOf(t).Error("copy of the configuration cannot be written", "err", err)
		return false
	}
	t.written = config
	return true
}

func (s *supervisor) start(t *tunnel, config []byte, now time.Time) {
	if !s.write(t, config, now) {
		return
	}
	serial := t.starts + 1
	out := &splitter{emit: func(text string) { s.events <- event{tunnel: t, start: serial, line: text} }}
	ended := func(how string) {
		out.flush()
		s.events <- event{tunnel: t, start: serial, how: how}
	}
	p, err := s.runner.Start(activeFile(s.dir.Prefix(), t.name), out, ended)
	if err != nil {
		t.startFailed(err.Error(), now)
		s.logOf(t).Error("stunnel cannot be started", "err", err)
		return
	}
	t.started(p, config, now)
	s.logOf(t).Info("stunnel started", "port", stunnelcfg.Accept(config).Port())
}

func (s *supervisor) reload(t *tunnel, config []byte, now time.Time) {
	if !s.write(t, config, now) {
		return
	}
	t.reloading(config, now)
	t.proc.Signal(syscall.SIGHUP)
	s.logOf(t).Info("stunnel reloads", "port", stunnelcfg.Accept(config).Port())
}

func (s *supervisor) stop(t *tunnel, now time.Time) {
	grace, log := stopGrace, s.logOf(t)
	switch {
	case s.closing:
		grace = s.options.StopGrace
	case t.want == nil:
		log.Info("stunnel stops: its file is gone")
	case t.phase != phaseRunning:
		words := fmt.Sprintf("no answer after %s", max(startLimit, reloadLimit))
		t.processProblem(ReasonUnresponsive, words, now)
		log.Error("stunnel hangs; restarting it", "reason", string(ReasonUnresponsive))
	default:
		log.Info("stunnel restarts, as its file asks for")
	}
	t.proc.Signal(syscall.SIGTERM)
	t.stopping(grace, now)
}
