package probe

import (
	"context"
	"sync"
	"time"
)

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
		if p.current().sameAddresses(task) {
			p.change(task)
			return
		}
		p.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{settings: m.settings, task: task, now: make(chan struct{}, 1), stop: cancel}
	m.probers[task.Name] = p
	m.done.Go(func() { p.run(ctx) })
}

// ProbeNow starts a round for the tunnel at once, if the Manager has it.
func (m *Manager) ProbeNow(name string) {
	if p, ok := m.probers[name]; ok {
		p.probeNow()
	}
}

// Close stops all probes and waits for those that run.
func (m *Manager) Close() {
	for _, p := range m.probers {
		p.stop()
	}
	m.done.Wait()
}
