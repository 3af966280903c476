package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// Task is a tunnel to probe.
type Task struct {
	Name    string
	Accept  netip.AddrPort   // the tunnel's local address
	Servers []netip.AddrPort // all mount targets of the tunnel, in any order
	Peer    Peer
	InUse   bool // volumes are mounted through the tunnel, so it is probed more often than others
	// Renew: each round needs a new connection, because an open one of this process says nothing about
	// clients, which have none or could not open another.
	Renew bool
	// DirectServer is probed instead of the tunnel if it is valid. A probe through an unused tunnel
	// would keep its stunnel running.
	DirectServer netip.AddrPort
	// AlsoProbe are servers that are probed directly in each round, also while the tunnel is healthy,
	// because open connections use them or the tunnel may return to them.
	AlsoProbe []netip.AddrPort
}

// Result is the result of one round of probes.
type Result struct {
	Name   string
	Accept netip.AddrPort
	Late   bool // this process did not run in time, so the fields below have no value
	// ServerOnly: the server was probed instead of the tunnel, as Task.DirectServer requests.
	ServerOnly bool
	Began      time.Time
	At         time.Time     // the end of the round
	Took       time.Duration // of the last call
	// Err is why a new connection through the tunnel failed; nil if it was answered, or if the open
	// connection was, so that no new one was needed.
	Err         error
	Established bool // an older connection is answered although new ones fail
	// Stuck: an older connection times out although a new one is answered. The next round waits for
	// the same call again, and is Stuck as well if that is not answered.
	Stuck bool
	// Direct are the results of direct probes: of all servers when the tunnel failed, else of those in
	// Task.AlsoProbe.
	Direct map[netip.AddrPort]error
}

// settings are the same for all tunnels.
type settings struct {
	dialer   Dialer
	interval time.Duration
	lateness func(func()) time.Duration
	report   func(context.Context, Result)
}

// prober probes one tunnel.
type prober struct {
	settings

	task atomic.Pointer[Task] // set by the Manager
	now  loop.Wake            // requests a round at once
	stop context.CancelFunc
}

// takes sets the task, unless its addresses need other connections. A tunnel that comes into use is probed at once.
func (p *prober) takes(task Task) bool {
	before := p.task.Load()
	if task.Accept != before.Accept || task.DirectServer != before.DirectServer {
		return false
	}
	p.task.Store(&task)
	if task.InUse && !before.InUse {
		p.now.Request()
	}
	return true
}

func (p *prober) run(ctx context.Context) {
	var open connections
	defer func() { open.close() }()
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		late := time.Duration(0)
		select {
		case <-ctx.Done():
			return
		case <-p.now:
		case <-timer.C:
			late = time.Since(due)
		}
		task := *p.task.Load()
		var result Result
		result, open = p.probe(ctx, task, open, late)
		if ctx.Err() != nil {
			return // the round was canceled
		}
		p.report(ctx, result)
		wait := timingOf(task, p.interval).interval
		wait -= time.Duration(rand.Float64() * jitter * float64(wait))
		due = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// probe does one round. A late round keeps its connections and discards its result: a timeout may be
// that of this process, which did not run, and not of the server.
func (p *prober) probe(ctx context.Context, task Task, open connections, late time.Duration) (Result, connections) {
	r := &round{dialer: p.dialer, task: task, timing: timingOf(task, p.interval)}
	var result Result
	late = max(late, p.lateness(func() { result, open = r.run(ctx, open) }))
	if late > maxLateness || r.connect > maxConnect {
		result = Result{Name: task.Name, Accept: task.Accept, Late: true}
	}
	return result, open
}

// jitter is the part of an interval by which it is shortened at most.
const jitter = 0.1

// Manager probes any number of tunnels. Each has a goroutine of its own, so that none waits for another.
type Manager struct {
	settings
	probers map[string]*prober // by tunnel
	done    sync.WaitGroup
}

// NewManager makes a Manager without tunnels. The interval is that between probes of a tunnel that is
// not in use. Report is called by many goroutines, and may block until its context ends.
func NewManager(dialer Dialer, interval time.Duration, report func(context.Context, Result)) *Manager {
	return &Manager{settings: settings{dialer, interval, lateness, report}, probers: map[string]*prober{}}
}

// SetTasks probes exactly these tunnels until the context ends. A tunnel that is new, or whose
// addresses changed, is probed at once. Only one goroutine may use SetTasks, ProbeNow and Close.
func (m *Manager) SetTasks(ctx context.Context, tasks []Task) {
	wanted := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		wanted[task.Name] = true
		m.start(ctx, task)
	}
	for name, p := range m.probers {
		if !wanted[name] {
			p.stop()
			delete(m.probers, name)
		}
	}
}

func (m *Manager) start(ctx context.Context, task Task) {
	if p, ok := m.probers[task.Name]; ok {
		if p.takes(task) {
			return
		}
		p.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{settings: m.settings, now: loop.NewWake(), stop: cancel}
	p.task.Store(&task)
	m.probers[task.Name] = p
	m.done.Go(func() { p.run(ctx) })
}

// ProbeNow starts a round for the tunnel at once, if the Manager has it.
func (m *Manager) ProbeNow(name string) {
	if p, ok := m.probers[name]; ok {
		p.now.Request()
	}
}

// Close stops all probes and waits for those that run.
func (m *Manager) Close() {
	for _, p := range m.probers {
		p.stop()
	}
	m.done.Wait()
}

// A process that gets no processor time, or is stopped for a while, sees timeouts of servers that
// answer in time. The result of a round that exceeds one of these limits is discarded.
const (
	// maxLateness is half of the shortest timeout, so that a server had at least the other half.
	maxLateness = 500 * time.Millisecond
	// maxConnect is for connecting to an address of the node itself, which takes microseconds.
	maxConnect = 200 * time.Millisecond

	timerInterval = 100 * time.Millisecond
)

// lateness runs do, and returns by how much timers expired late meanwhile, at most.
func lateness(do func()) time.Duration {
	done, worst := make(chan struct{}), make(chan time.Duration, 1)
	// The process may be stopped before the goroutine runs, so the first timer begins here.
	due := time.Now().Add(timerInterval)
	go func() { worst <- timerLateness(due, done) }()
	do()
	close(done)
	return <-worst
}

// timerLateness runs short timers one after another, and measures how late this goroutine is woken.
func timerLateness(due time.Time, done <-chan struct{}) (worst time.Duration) {
	for {
		select {
		case <-done:
			return max(worst, time.Since(due))
		case <-time.After(time.Until(due)):
			worst = max(worst, time.Since(due))
		}
		due = time.Now().Add(timerInterval)
	}
}
