package probe

import (
	"context"
	"sync"
	"time"
)

// Fleet watches any number of tunnels, each on its own, so that none waits for another.
type Fleet struct {
	dialer   Dialer
	interval time.Duration
	lateness func(func()) time.Duration
	report   func(context.Context, Result)
	running  map[string]member
	done     sync.WaitGroup
}

type member struct {
	prober *prober
	stop   context.CancelFunc
}

// NewFleet watches nothing yet. interval is between two probes of a tunnel that is not in use.
// report is called from many goroutines and may wait until its context ends.
func NewFleet(dialer Dialer, interval time.Duration, report func(context.Context, Result)) *Fleet {
	return &Fleet{dialer: dialer, interval: interval, lateness: lateness, report: report, running: map[string]member{}}
}

// Watch has exactly these tunnels watched, until the context ends. A tunnel that is new, or
// listens elsewhere, is probed at once. It is for one goroutine.
func (f *Fleet) Watch(ctx context.Context, tasks []Task) {
	wanted := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		wanted[task.Name] = true
		f.start(ctx, task)
	}
	for name, m := range f.running {
		if !wanted[name] {
			m.stop()
			delete(f.running, name)
		}
	}
}

func (f *Fleet) start(ctx context.Context, task Task) {
	if m, ok := f.running[task.Name]; ok {
		if m.prober.current().sameLine(task) {
			m.prober.change(task)
			return
		}
		m.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{
		dialer: f.dialer, interval: f.interval, lateness: f.lateness, report: f.report,
		task: task, kick: make(chan struct{}, 1),
	}
	f.running[task.Name] = member{p, cancel}
	f.done.Go(func() { p.run(ctx) })
}

// Hurry has a tunnel probed at once, if it is watched.
func (f *Fleet) Hurry(name string) {
	if m, ok := f.running[name]; ok {
		m.prober.hurry()
	}
}

// Close stops watching, and returns when no probe is under way.
func (f *Fleet) Close() {
	for _, m := range f.running {
		m.stop()
	}
	f.done.Wait()
}
