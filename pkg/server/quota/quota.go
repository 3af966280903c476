// Package quota has xfs enforce the sizes of volumes on the disk of an NFS server: each directory with an owner in the
// ledger is a project of its own, with the largest size of its owners as its limit.
//
// Whoever can write the ledger, or any file system's root, is trusted with limits, as mount Jobs are. Clients that
// see no more than a volume's directory can change neither its project nor its limit through NFS.
package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

const (
	// interval is the time between two reads of the ledger, each of which costs three system calls a directory.
	interval = 2 * time.Second
	// resyncInterval is the time after which all is read anew, for edits by hand.
	resyncInterval = 5 * time.Minute
	// assignedAtOnce limits the directories that are assigned side by side. One that is large does not keep others
	// from their limits.
	assignedAtOnce = 4
	// begunAtOnce limits those that have begun or wait for that: all are looked at again after as many.
	begunAtOnce = 256
)

// Options configure a Limiter.
type Options struct {
	Export  string           // the folder with the ledger and the volumes
	Failing prometheus.Gauge // 1 while some sizes are not enforced
	Limited prometheus.Gauge // the number of limited directories
	Log     *slog.Logger
}

// Limiter limits directories to the sizes in the ledger.
type Limiter struct {
	options Options
	disk    disk
	ledger  ledger

	assigning map[string]uint32 // projects of the directories that are being assigned, by path
	assigned  chan outcome      // of these
	slots     chan struct{}     // for those that are not waiting
	running   sync.WaitGroup
	problems  map[string]error // of directories that could not be assigned, by path
	isPending bool             // something is to be done although the ledger does not change
	resynced  time.Time        // when all was read
	last      loop.LastError
}

// outcome ends the assignment of a directory.
type outcome struct {
	path string
	err  error
}

// New returns the error for which sizes cannot be enforced on the disk.
func New(o Options) (*Limiter, error) {
	root, err := os.Open(o.Export)
	if err != nil {
		return nil, fmt.Errorf("opening the export: %w", err)
	}
	d := disk{root}
	if err := d.check(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Limiter{
		options: o, disk: d, ledger: ledger{disk: d},
		assigning: map[string]uint32{}, assigned: make(chan outcome, begunAtOnce), slots: make(chan struct{}, assignedAtOnce),
		problems: map[string]error{},
	}, nil
}

// Check returns why sizes cannot be enforced on the file system of a folder.
func Check(folder string) error {
	l, err := New(Options{Export: folder})
	if err != nil {
		return err
	}
	return l.disk.root.Close()
}

// Run limits directories until the context ends.
func (l *Limiter) Run(ctx context.Context) {
	defer l.disk.root.Close()
	defer l.running.Wait()
	for ctx.Err() == nil {
		l.report(l.sync(ctx, time.Now()))
		l.wait(ctx)
	}
}

// wait returns after the interval, or when all directories that have begun are assigned.
func (l *Limiter) wait(ctx context.Context) {
	due := time.After(interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			return
		case ended := <-l.assigned:
			delete(l.assigning, ended.path)
			if ended.err != nil {
				l.problems[ended.path] = ended.err
			} else if len(l.assigning) == 0 {
				return
			}
		}
	}
}

// report logs an error once; tries go on.
func (l *Limiter) report(err error) {
	l.isPending = l.isPending || err != nil
	switch isNew, ended := l.last.Update(err); {
	case ended:
		l.options.Failing.Set(0)
		l.options.Log.Info("the sizes of volumes are enforced again")
	case isNew:
		l.options.Failing.Set(1)
		l.options.Log.Error("the sizes of some volumes are not enforced", "err", err)
	}
}

// sync does what the ledger, or a directory that has come since, makes necessary.
func (l *Limiter) sync(ctx context.Context, now time.Time) error {
	if now.Sub(l.resynced) >= resyncInterval {
		l.ledger.nodes, l.resynced = nil, now
	}
	sizes, changed, err := l.ledger.read(now)
	if err != nil || !changed && !l.isPending {
		return err
	}
	s, err := l.observe(sizes)
	if err != nil {
		return err
	}
	actions := plan(s)
	l.isPending = len(actions) > 0 || len(s.projects) < len(sizes)
	limited := len(s.projects)
	problems := map[string]error{}
	for _, a := range actions {
		if a.path != "" {
			limited--
			problems[a.path] = l.problems[a.path]
		}
		if err := l.apply(ctx, a); err != nil {
			return err
		}
	}
	l.options.Limited.Set(float64(limited))
	l.problems = problems
	return errors.Join(slices.Collect(maps.Values(problems))...)
}

// observe lists limits before projects: what is being assigned meanwhile has its project before its limit.
func (l *Limiter) observe(sizes map[string]int64) (s state, err error) {
	s = state{wanted: sizes, projects: map[string]uint32{}}
	if s.limits, err = l.disk.limits(); err != nil {
		return s, err
	}
	for path := range sizes {
		project, isThere, err := l.disk.project(path)
		if err != nil {
			return s, err
		}
		if isThere {
			s.projects[path] = project
		}
	}
	maps.Copy(s.projects, l.assigning)
	return s, nil
}

func (l *Limiter) apply(ctx context.Context, a action) error {
	if a.path == "" {
		return l.disk.limit(a.project, a.size)
	}
	if _, begun := l.assigning[a.path]; begun || len(l.assigning) >= begunAtOnce {
		return nil
	}
	l.assigning[a.path] = a.project
	l.running.Go(func() {
		l.slots <- struct{}{}
		defer func() { <-l.slots }()
		err := l.disk.assign(ctx, a.path, a.project)
		if err == nil {
			err = l.disk.limit(a.project, a.size)
		}
		l.assigned <- outcome{a.path, err}
	})
	return nil
}
