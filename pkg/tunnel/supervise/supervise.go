// Package supervise keeps the node's end of each tunnel: it listens on the tunnel's port, runs a
// stunnel process that accepts from there when somebody connects, has it reload what changed,
// restarts what dies, ends what is idle or not wanted any more, and keeps a file with the status of
// all.
//
// It needs nothing but the folder of specifications and the program: no API, no network, no
// rights. Whoever writes the specifications may crash, loop or be away; tunnels stay as they were
// asked for. No process outlives the supervisor, however that ends; the ports do, as the agent
// keeps copies of the sockets (package fdstore).
//
// One goroutine owns all state. What happens comes to it as events; the pure function plan says
// what to do next for one tunnel.
package supervise

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/tunnel/fdstore"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// Options say what to run.
type Options struct {
	// Prefix begins the names of the tunnels' files (package confdir).
	Prefix string
	// Stunnel is the program's path.
	Stunnel string
	// Launcher is the command that becomes stunnel by Launch: program, memory limit in bytes and
	// configuration file are added to it.
	Launcher []string
	// MemoryLimit bounds the data of one process, in bytes.
	MemoryLimit uint64
	// Idle is after how long without a connection a process ends, and that it starts at the first
	// connection; 0 has all run always.
	Idle time.Duration
	// Clients says who is connected to loopback ports, besides the agent, and Listening who
	// listens there.
	Clients   func() (sockets.Uses, error)
	Listening func() (sockets.Listeners, error)
	// ServeOn is for how long after the context's end open connections are served without a
	// successor.
	ServeOn time.Duration
	// StopGrace is how long processes may take to end then, before they are killed.
	StopGrace time.Duration
	// ReapOrphans waits for children that ended and are nobody's: the kernel gives those of
	// others to the first process of a container. The caller must have no other children.
	ReapOrphans bool
	Log         *slog.Logger
}

// Run works until the context ends. Then it serves each tunnel on until another supervisor listens
// on its port, nobody is connected to it, or ServeOn is over; it ends the processes and returns nil.
// It returns an error, having started nothing, when there is no such folder or program, or the
// program can run no tunnel: an agent without a supervisor is not ready, so that a rollout stops
// with the old pods serving.
func Run(ctx context.Context, o Options) error {
	dir, err := confdir.Open(o.Prefix)
	if err != nil {
		return err
	}
	features, err := usable(ctx, o)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	// The processes' thread outlives the context by their end.
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := newSupervisor(o, dir, features, newPrograms(lifetime, o))
	if s.arrivals, err = newArrivals(func(fd int32) { s.events <- event{arrival: fd} }); err != nil {
		return err
	}
	defer s.arrivals.close()
	changed, closeWatch := watch(dir, o.Log)
	defer closeWatch()
	s.kept = fdstore.Take(dir.StoreSocket(), o.Log)
	s.store = fdstore.NewKeeper(lifetime, dir.StoreSocket(), o.Log)
	o.Log.Info("supervising tunnels")
	return s.run(ctx, changed)
}

type supervisor struct {
	options    Options
	dir        confdir.Dir
	features   stunnelcfg.Features
	runner     runner
	memoryOf   func(pid int) (uint64, error)
	arrivals   *arrivals
	store      *fdstore.Keeper
	classifier classifier
	events     chan event
	tunnels    map[string]*tunnel
	// kept are the sockets that an earlier supervisor of this pod had open, until the first look
	// at the specifications.
	kept    map[netip.AddrPort]*os.File
	parked  map[netip.AddrPort]*os.File // with the agent
	scanAt  time.Time
	usesAt  time.Time
	unknown bool // the kernel does not tell who is connected
	status  statusWriter

	closing          bool // the context has ended
	closeAt, closeBy time.Time
}

// event is something that a process did, or a connection that waits.
type event struct {
	tunnel  *tunnel // nil for a connection
	start   int     // which of its processes
	line    string  // "" for its end
	how     string  // it ended
	arrival int32   // the descriptor of the listener at which a connection waits
}

func newSupervisor(o Options, dir confdir.Dir, features stunnelcfg.Features, r runner) *supervisor {
	return &supervisor{
		options: o, dir: dir, features: features, runner: r, memoryOf: dataOf,
		classifier: newClassifier(),
		events:     make(chan event, 1024),
		tunnels:    map[string]*tunnel{},
		status:     statusWriter{dir: dir, startedAt: time.Now()},
	}
}

func (s *supervisor) run(ctx context.Context, changed <-chan struct{}) error {
	done := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-done:
			done, s.closing, s.closeBy = nil, true, time.Now().Add(s.options.ServeOn)
			s.options.Log.Info("ending; tunnels that are in use are served until a successor has their ports")
		case <-changed:
			s.scanSoon(time.Now())
		case e := <-s.events:
			s.handle(e, time.Now())
			s.handleWaiting()
		case <-timer.C:
		}
		now := time.Now()
		s.scan(now)
		s.lookAtUses(now)
		s.close(now)
		next := s.advance(now)
		s.park()
		if s.closing && len(s.tunnels) == 0 {
			return s.status.remove()
		}
		next = soonest(next, s.scanAt, s.usesAt, s.closeAt, s.report(now))
		timer.Reset(time.Until(next))
	}
}

// scanSoon leaves time for what else changes in the same moment.
func (s *supervisor) scanSoon(now time.Time) { s.scanAt = earlier(s.scanAt, now.Add(scanDelay)) }

// scan reads the specifications when it is time to. What cannot be read stays as it was.
func (s *supervisor) scan(now time.Time) {
	if now.Before(s.scanAt) {
		return
	}
	s.scanAt = now.Add(scanInterval)
	s.reapOrphans()
	names, err := s.dir.Names()
	if err != nil {
		s.options.Log.Warn("folder of specifications cannot be read; tunnels stay as they are", "err", err)
		return
	}
	for _, name := range names {
		if s.tunnels[name] == nil && !s.closing {
			s.tunnels[name] = newTunnel(name, s.options.Idle)
		}
	}
	for name, t := range s.tunnels {
		s.read(t, slices.Contains(names, name))
	}
}

func (s *supervisor) read(t *tunnel, there bool) {
	if t.leaving {
		return
	}
	if !there {
		t.sees(config{})
		return
	}
	text, err := s.dir.Read(t.name)
	if err == nil && text == nil {
		return // it went between the two looks; the next will see that
	}
	c := config{generation: spec.Generation(text)}
	if err == nil && c.is(t.want) {
		return
	}
	if err == nil {
		c.Tunnel, err = spec.Decode(text)
	}
	if err != nil {
		s.logOf(t).Error("specification cannot be read; the tunnel stays as it is", "err", err)
		return
	}
	t.sees(c)
}

// handleWaiting takes what else has come, so that plans are made once for all of it.
func (s *supervisor) handleWaiting() {
	for range cap(s.events) {
		select {
		case e := <-s.events:
			s.handle(e, time.Now())
		default:
			return
		}
	}
}

func (s *supervisor) handle(e event, now time.Time) {
	t := e.tunnel
	if t == nil {
		s.arrived(e.arrival)
		return
	}
	if e.start != t.starts || t.proc == nil {
		return // of a process before
	}
	if e.line != "" {
		l := parseLine(e.line)
		if l.text == configurationFailed {
			s.addUnreadable(t, now)
		}
		s.hear(t, l, now)
		return
	}
	s.logEnd(t, e.how)
	t.ended(e.how, now)
}

func (s *supervisor) arrived(fd int32) {
	for _, t := range s.tunnels {
		if t.socket != nil && int32(t.socket.file.Fd()) == fd {
			t.arrived()
		}
	}
}

func (s *supervisor) hear(t *tunnel, l line, now time.Time) {
	s.logLine(t, l)
	t.hear(l, s.classifier, now)
}

// addUnreadable completes what stunnel said while it refused a configuration.
func (s *supervisor) addUnreadable(t *tunnel, now time.Time) {
	for _, words := range unreadable(t.attempted().Tunnel) {
		s.hear(t, line{severity: severityError, thread: mainThread, text: words}, now)
	}
}

// advance does what can be done now, and says when there may be more; the zero time for never.
func (s *supervisor) advance(now time.Time) time.Time {
	var next time.Time
	for _, name := range slices.Sorted(maps.Keys(s.tunnels)) {
		next = soonest(next, s.advanceOne(s.tunnels[name], now))
	}
	return next
}

func (s *supervisor) advanceOne(t *tunnel, now time.Time) time.Time {
	for {
		next := plan(t, now)
		if next.verb == doNothing {
			return next.at
		}
		s.apply(t, next, now)
		if next.verb == doForget {
			return time.Time{}
		}
	}
}

// soonest is the earliest of times that are not zero.
func soonest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

func (s *supervisor) logOf(t *tunnel) *slog.Logger {
	fileSystem, accessPoint, _ := strings.Cut(t.name, ".")
	log := s.options.Log.With("fileSystem", fileSystem)
	if accessPoint != "" {
		log = log.With("accessPoint", accessPoint)
	}
	return log
}

// logLine hands on what stunnel says. What it says about being told to end is nobody's concern.
func (s *supervisor) logLine(t *tunnel, l line) {
	log := s.logOf(t)
	if reason := s.classifier.reason(l.text); reason != "" {
		log = log.With("reason", string(reason))
	}
	say := log.Debug
	switch level := l.level(); {
	case t.phase == phaseStopping:
	case level >= slog.LevelError:
		say = log.Error
	case level >= slog.LevelWarn:
		say = log.Warn
	}
	say("stunnel says", "line", l.text)
}

func (s *supervisor) logEnd(t *tunnel, how string) {
	log := s.logOf(t).With("reason", how)
	if t.phase == phaseStopping {
		log.Info("stunnel ended")
		return
	}
	log.Warn("stunnel died")
}

func (s *supervisor) reapOrphans() {
	if !s.options.ReapOrphans {
		return
	}
	ours := map[int]bool{}
	for _, t := range s.tunnels {
		if t.proc != nil {
			ours[t.proc.PID()] = true
		}
	}
	for _, pid := range deadChildren(os.Getpid()) {
		if !ours[pid] {
			// Gone is gone; the error would say no more.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
