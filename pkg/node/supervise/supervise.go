// Package supervise runs the stunnel processes of a node. For each tunnel that has a specification,
// the supervisor listens on the tunnel's port and starts stunnel with that socket when a client
// connects. It reloads stunnel when the specification changes, restarts stunnel when it dies, stops
// stunnel when the tunnel is idle or removed, and reports all tunnels in a status file.
//
// The supervisor needs only the directory of specifications and the stunnel program: no API, no
// network, no privileges. When the agent, which writes the specifications, crashes or hangs, tunnels
// keep the last specification. No stunnel process outlives the supervisor, not even one that is
// killed. The ports stay open, because the agent holds copies of the sockets (package fdstore).
//
// One goroutine owns all state and receives events from the others. The pure function plan decides
// the next step of one tunnel.
package supervise

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/process"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// Options configure Run.
type Options struct {
	Prefix  string // begins the names of the tunnels' files (package confdir)
	Stunnel string // the path of the stunnel program
	FIPS    bool   // no stunnel runs without its FIPS mode
	// Launcher is a command that calls process.Launch with its arguments, to which the supervisor appends
	// the path of stunnel and the configuration file.
	Launcher    []string
	MemoryLimit uint64 // bounds the data segment of one stunnel process, in bytes
	// Idle is the time without a connection after which stunnel stops. It starts again at the next
	// connection. With 0, stunnel runs all the time.
	Idle time.Duration
	// Lanes is the most connections to a server over which one of a client is spread. With 1, stunnel accepts
	// the clients' connections itself.
	Lanes int
	// Clients counts the connections to loopback ports, without those of the agent. Listening
	// returns the sockets that listen there.
	Clients   func() (sockets.ClientCounts, error)
	Listening func() (sockets.Listeners, error)
	// DrainTimeout bounds how long Run serves open connections after its context has ended, while
	// no other supervisor listens on their ports.
	DrainTimeout time.Duration
	StopGrace    time.Duration // the time between SIGTERM and SIGKILL during that shutdown
	// ReapOrphans reaps adopted zombies: the kernel reparents orphans to the first process of a
	// container. The caller must have no other children.
	ReapOrphans bool
	Log         *slog.Logger
}

// Run supervises tunnels until the context ends. It then keeps serving each tunnel until another
// supervisor listens on its port, its last client has disconnected, or DrainTimeout has passed,
// stops the processes and returns nil. It returns an error, and starts nothing, when the directory
// or the program is missing or the program lacks a required feature. The agent is not ready then,
// so the rollout stops while the old pods serve.
func Run(ctx context.Context, o Options) error {
	dir, err := confdir.Open(o.Prefix)
	if err != nil {
		return err
	}
	features, err := waitForFeatures(ctx, o)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	// The thread that starts processes must outlive them, and so the context.
	starter := process.NewStarter()
	defer close(starter)
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := newSupervisor(o, dir, features, starter)
	if s.connWatcher, err = newConnWatcher(func(fd int32) {
		s.events <- func(time.Time) { s.connectionWaiting(fd) }
	}); err != nil {
		return err
	}
	defer s.connWatcher.close()
	s.inherited = fdstore.Take(dir.StoreSocket(), o.Log)
	s.store = fdstore.NewClient(lifetime, dir.StoreSocket(), o.Log)
	o.Log.Info("supervising tunnels", "version", features.Version, "fips", o.FIPS)
	return s.run(ctx, watch(lifetime, dir, o.Log))
}

type supervisor struct {
	options     Options
	dir         confdir.Dir
	features    stunnelcfg.Features
	starter     process.Starter
	memoryOf    func(pid int) (uint64, error)
	limitMemory func(pid int, bytes uint64) error
	connWatcher *connWatcher
	store       *fdstore.Client
	events      chan func(now time.Time) // log lines and exits of processes, and connections that wait at a listener
	tunnels     map[string]*tunnel
	// inherited are the sockets of an earlier supervisor of this pod; nil after the first scan.
	inherited      fdstore.Sockets
	stored         fdstore.Sockets // that the agent holds copies of; nil before the first
	scanAt         time.Time
	clientsAt      time.Time
	clientsUnknown bool // Options.Clients failed
	startedAt      time.Time
	fronts         int               // that were started, for the names of their sockets
	status         tunnelspec.Status // that was written last
	statusAt       time.Time         // of the last attempt to write it

	closing          bool // the context has ended
	closeAt, closeBy time.Time
}

func newSupervisor(o Options, dir confdir.Dir, features stunnelcfg.Features, starter process.Starter) *supervisor {
	return &supervisor{
		options: o, dir: dir, features: features, starter: starter, memoryOf: dataSize, limitMemory: limitDataSize,
		events:    make(chan func(time.Time), 1024),
		tunnels:   map[string]*tunnel{},
		startedAt: time.Now(),
	}
}

func (s *supervisor) run(ctx context.Context, changed <-chan struct{}) error {
	done := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-done:
			done, s.closing, s.closeBy = nil, true, time.Now().Add(s.options.DrainTimeout)
			s.options.Log.Info("shutting down; tunnels in use are served until another supervisor listens on their ports")
		case <-changed:
			// One scan reads a burst of changes.
			if next := time.Now().Add(scanDelay); next.Before(s.scanAt) {
				s.scanAt = next
			}
		case handle := <-s.events:
			handle(time.Now())
			for range len(s.events) { // so that one planning pass serves all that are queued
				(<-s.events)(time.Now())
			}
		case <-timer.C:
		}
		now := time.Now()
		s.scan(now)
		s.checkClients(now)
		s.closeTunnels(now)
		next := s.advance(now) //nolint:contextcheck // a line of stunnel is logged without it
		s.storeSockets()
		if s.closing && len(s.tunnels) == 0 {
			return s.dir.Status().Remove()
		}
		next = earliest(next, s.scanAt, s.clientsAt, s.closeAt, s.report(now))
		timer.Reset(time.Until(next))
	}
}

// scan reads the specifications when a scan is due. A tunnel whose specification is unreadable stays
// unchanged. The listing only adds tunnels: before Linux 6.6, it can lack a file that is replaced
// meanwhile.
func (s *supervisor) scan(now time.Time) {
	if now.Before(s.scanAt) {
		return
	}
	s.scanAt = now.Add(scanInterval)
	s.reapOrphans()
	names, err := s.dir.Names()
	if err != nil {
		s.options.Log.Warn("listing specifications failed; tunnels stay unchanged", "err", err)
		return
	}
	for _, name := range names {
		if s.tunnels[name] == nil && !s.closing {
			s.tunnels[name] = newTunnel(name, s.options.Idle)
		}
	}
	for _, t := range s.tunnels {
		s.readSpec(t)
	}
}

func (s *supervisor) readSpec(t *tunnel) {
	if t.closing {
		return
	}
	text, err := s.dir.Spec(t.name).Read()
	if err == nil && text == nil {
		t.setDesired(config{})
		return
	}
	c := config{generation: tunnelspec.Generation(text)}
	if err == nil && c.sameAs(t.desired) {
		return
	}
	if err == nil {
		c.Tunnel, err = tunnelspec.Decode(text)
	}
	if err != nil {
		s.logFor(t).Error("reading the specification failed; the tunnel stays unchanged", "err", err)
		return
	}
	t.setDesired(c)
}

// send has the loop handle what a process did, unless that is not the tunnel's any more by then.
func (s *supervisor) send(t *tunnel, start int, handle func(now time.Time)) {
	s.events <- func(now time.Time) {
		if t.starts == start && t.proc != nil {
			handle(now)
		}
	}
}

func (s *supervisor) handleOutput(t *tunnel, text string, now time.Time) {
	l := parseLine(text)
	if l.text == configurationFailed {
		// stunnel's own messages do not name the files.
		for _, message := range unreadableFiles(t.attempted.Tunnel) {
			s.handleLine(t, line{slog.LevelError, mainThread, message}, now)
		}
	}
	s.handleLine(t, l, now)
}

func (s *supervisor) handleExit(t *tunnel, exitStatus string, now time.Time) {
	log := s.logFor(t).With("exitStatus", exitStatus)
	if t.phase == phaseStopping {
		log.Info("stunnel exited")
	} else {
		log.Warn("stunnel exited unexpectedly")
	}
	t.exited(exitStatus, now)
}

func (s *supervisor) connectionWaiting(fd int32) {
	for _, t := range s.tunnels {
		if t.socket != nil && int32(t.stunnelSocket().Fd()) == fd {
			t.connectionWaiting()
		}
	}
}

// handleLine logs a line of stunnel, at debug level while stunnel is stopping, and records it.
func (s *supervisor) handleLine(t *tunnel, l line, now time.Time) {
	log, level := s.logFor(t), l.level
	if reason := reasonOf(l.text); reason != "" {
		log = log.With("reason", string(reason))
	}
	if t.phase == phaseStopping {
		level = slog.LevelDebug
	}
	log.Log(context.Background(), level, "stunnel logged", "line", l.text)
	t.handleLine(l, now)
}

// advance applies all steps that are due and returns when the next one may be, zero for never.
func (s *supervisor) advance(now time.Time) time.Time {
	var earliestStep time.Time
	for _, name := range slices.Sorted(maps.Keys(s.tunnels)) {
		t := s.tunnels[name]
		next := plan(t, now)
		for next.verb != doNothing && s.tunnels[name] == t {
			s.apply(t, next, now)
			next = plan(t, now)
		}
		earliestStep = earliest(earliestStep, next.at)
	}
	return earliestStep
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

func (s *supervisor) logFor(t *tunnel) *slog.Logger { return logging.ForTunnel(s.options.Log, t.name) }
