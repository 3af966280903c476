package probe

import (
	"context"
	"sync"
	"time"
)

// Manager probes any number of tunnels. Each has a goroutine of its own, so that none waits for
// another.
type Manager struct {
	dialer   Dialer
	interval time.Duration
	lateness func(func()) time.Duration
	report   func(context.Context, Result)
	workers  map[string]worker // by tunnel
	done     sync.WaitGroup
}

type worker struct {
	prober *prober
	stop   context.CancelFunc
}

// NewManager makes a Manager without tunnels. The interval is that between probes of a tunnel that is
// not in use. Report is called by many goroutines, and may block until its context ends.
func NewManager(dialer Dialer, interval time.Duration, report func(context.Context, Result)) *Manager {
	return &Manager{dialer: dialer, interval: interval, lateness: lateness, report: report, workers: map[string]worker{}}
}

// SetTasks probes exactly these tunnels until the context ends. A tunnel that is new, or whose
// addresses changed, is probed at once. Only one goroutine may use SetTasks, ProbeNow and Close.
func (m *Manager) SetTasks(ctx context.Context, tasks []Task) {
	wanted := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		wanted[task.Name] = true
		m.start(ctx, task)
	}
	for name, w := range m.workers {
		if !wanted[name] {
			w.stop()
			delete(m.workers, name)
		}
	}
}

func (m *Manager) start(ctx context.Context, task Task) {
	if w, ok := m.workers[task.Name]; ok {
		if w.prober.current().sameAddresses(task) {
			w.prober.change(task)
			return
		}
		w.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{
		dialer: m.dialer, interval: m.interval, lateness: m.lateness, report: m.report,
		task: task, now: make(chan struct{}, 1),
	}
	m.workers[task.Name] = worker{p, cancel}
	m.done.Go(func() { p.run(ctx) })
}

// ProbeNow starts a round for the tunnel at once, if the Manager has it.
func (m *Manager) ProbeNow(name string) {
	if w, ok := m.workers[name]; ok {
		w.prober.probeNow()
	}
}

// Close stops all probes and waits for those that run.
func (m *Manager) Close() {
	for _, w := range m.workers {
		w.stop()
	}
	m.done.Wait()
}
