// Package supervise runs one stunnel process for each configuration file of a folder: it starts
// them, has them reload what changed, restarts what dies, stops what is not wanted any more, and
// keeps a file with their status.
//
// It needs nothing but that folder and the program: no API, no network, no rights. Whoever
// writes the files may crash, loop or be away; tunnels stay as the files say. No process
// outlives the supervisor, however that ends.
//
// One goroutine owns all state. What happens comes to it as events; the pure function plan says
// what to do next for one tunnel.
package supervise

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
)

// Options say what to run.
type Options struct {
	// Prefix begins the names of the tunnels' files, each of which is <prefix>.<tunnel>.
	Prefix string
	// Stunnel is the program's path.
	Stunnel string
	// StopGrace is how long processes may take to end when the context does, before they are
	// killed.
	StopGrace time.Duration
	// ReapOrphans waits for children that ended and are nobody's: the kernel gives those of
	// others to the first process of a container. The caller must have no other children.
	ReapOrphans bool
	Log         *slog.Logger
}

// Run works until the context ends; then it ends the processes and returns nil. It returns an
// error, having started nothing, when there is no such folder or program, or the program can run
// no tunnel: an agent without a supervisor is not ready, so that a rollout stops with the old
// pods serving.
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
	changed, closeWatch := watch(dir.Prefix(), o.Log)
	defer closeWatch()
	s := newSupervisor(o, dir, features, newPrograms(lifetime, o.Stunnel))
	o.Log.Info("supervising tunnels")
	return s.run(ctx, changed)
}

type supervisor struct {
	options    Options
	dir        confdir.Dir
	features   stunnelcfg.Features
	runner     runner
	classifier classifier
	events     chan event
	tunnels    map[string]*tunnel
	closing    bool // the context has ended
	scanAt     time.Time
	status     statusWriter
}

// event is something that a process did.
type event struct {
	tunnel *tunnel
	start  int    // which of its processes
	line   string // "" for its end
	how    string // it ended
}

func newSupervisor(o Options, dir confdir.Dir, features stunnelcfg.Features, r runner) *supervisor {
	return &supervisor{
		options: o, dir: dir, features: features, runner: r,
		classifier: newClassifier(),
		events:     make(chan event, 1024),
		tunnels:    map[string]*tunnel{},
		status:     statusWriter{prefix: dir.Prefix(), startedAt: time.Now()},
	}
}

func (s *supervisor) run(ctx context.Context, changed <-chan struct{}) error {
	done := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-done:
			done, s.closing = nil, true
			s.options.Log.Info("ending all tunnels")
		case <-changed:
			s.scanSoon(time.Now())
		case e := <-s.events:
			s.handle(e, time.Now())
			s.handleWaiting()
		case <-timer.C:
		}
		now := time.Now()
		s.scan(now)
		next := s.advance(now)
		if s.closing && len(s.tunnels) == 0 {
			return s.status.remove()
		}
		next = soonest(next, s.scanAt, s.report(now))
		timer.Reset(time.Until(next))
	}
}

// scanSoon leaves time for what else changes in the same moment.
func (s *supervisor) scanSoon(now time.Time) { s.scanAt = earlier(s.scanAt, now.Add(scanDelay)) }

// scan reads the files when it is time to. What cannot be read stays as it was.
func (s *supervisor) scan(now time.Time) {
	if now.Before(s.scanAt) {
		return
	}
	s.scanAt = now.Add(scanInterval)
	s.reapOrphans()
	names, err := s.dir.Names()
	if err != nil {
		s.options.Log.Warn("configuration folder cannot be read; tunnels stay as they are", "err", err)
		return
	}
	for _, name := range names {
		if s.tunnels[name] == nil {
			s.tunnels[name] = newTunnel(name)
		}
	}
	for name, t := range s.tunnels {
		s.read(t, slices.Contains(names, name))
	}
}

func (s *supervisor) read(t *tunnel, there bool) {
	if !there {
		t.sees(nil)
		return
	}
	config, err := s.dir.Read(t.name)
	if err != nil {
		s.logOf(t).Warn("configuration file cannot be read; the tunnel stays as it is", "err", err)
		return
	}
	t.sees(config)
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

func (s *supervisor) hear(t *tunnel, l line, now time.Time) {
	s.logLine(t, l)
	t.hear(l, s.classifier, now)
}

// addUnreadable completes what stunnel said while it refused a configuration.
func (s *supervisor) addUnreadable(t *tunnel, now time.Time) {
	for _, words := range unreadable(t.attempted()) {
		s.hear(t, line{severity: severityError, thread: mainThread, text: words}, now)
	}
}

// advance does what can be done now, and says when there may be more; the zero time for never.
func (s *supervisor) advance(now time.Time) time.Time {
	var next time.Time
	for _, name := range slices.Sorted(maps.Keys(s.tunnels)) {
		t := s.tunnels[name]
		if s.closing {
			t.sees(nil)
		}
		next = soonest(next, s.advanceOne(t, now))
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
