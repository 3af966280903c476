package standin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// nfsPort is where mount targets listen.
const nfsPort = "2049"

// exporter runs the NFS servers.
type exporter interface {
	Apply(ctx context.Context, exports []ganesha.Export) error
	Address(name string) (string, bool)
	Ready(ctx context.Context) error
}

// daemon is a running stand-in.
type daemon struct {
	cfg      Config
	log      *slog.Logger
	world    *world.Store
	faults   *efsapi.Faults
	counters *efsapi.Counters
	servers  exporter
	targets  *terminator.Set

	reconciling sync.Mutex // held for the whole of a reconciliation

	mu       sync.Mutex
	problem  error            // guarded by mu; of the last reconciliation
	unserved map[string]error // guarded by mu; access points without a root directory
}

// errNotYet is the problem before the first reconciliation.
var errNotYet = errors.New("still starting")

// reconcile makes addresses, NFS servers and mount targets those of the world.
func (d *daemon) reconcile(ctx context.Context) error {
	d.reconciling.Lock()
	defer d.reconciling.Unlock()
	w := d.world.Snapshot()
	problem := errors.Join(
		d.reconcileAddresses(ctx, w),
		d.reconcileServers(ctx, w),
		d.targets.Apply(ctx, specs(w)),
	)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = problem
	return problem
}

// reconcileAndLog logs a problem once, not each time it is seen again.
func (d *daemon) reconcileAndLog(ctx context.Context) {
	d.mu.Lock()
	before := d.problem
	d.mu.Unlock()
	after := d.reconcile(ctx)
	if after != nil && ctx.Err() == nil && text(before) != text(after) {
		d.log.Error("not everything is served", "err", after)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (d *daemon) reconcileServers(ctx context.Context, w world.World) error {
	var exports []ganesha.Export
	unserved := map[string]error{}
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(w.FileSystems)) {
		dir := d.dataDir(id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			problems = append(problems, fmt.Errorf("making the root directory of %s: %w", id, err))
			continue
		}
		exports = append(exports, ganesha.Export{Name: id, Dir: dir})
		for _, p := range w.AccessPointsOf(id) {
			export, err := exportOf(dir, p)
			if err != nil {
				unserved[p.ID] = err
				continue
			}
			exports = append(exports, export)
		}
	}
	d.mu.Lock()
	d.unserved = unserved
	d.mu.Unlock()
	return errors.Join(append(problems, d.servers.Apply(ctx, exports))...)
}

func specs(w world.World) []terminator.Spec {
	list := make([]terminator.Spec, 0, len(w.MountTargets))
	for _, t := range w.MountTargets {
		list = append(list, terminator.Spec{ID: t.ID, FileSystemID: t.FileSystemID, Address: net.JoinHostPort(t.Address, nfsPort)})
	}
	return list
}

func (d *daemon) dataDir(fileSystemID string) string {
	return filepath.Join(d.cfg.StateDir, "data", fileSystemID)
}

func (d *daemon) removeData(fileSystemID string) error {
	if err := os.RemoveAll(d.dataDir(fileSystemID)); err != nil {
		return fmt.Errorf("removing the files of %s: %w", fileSystemID, err)
	}
	return nil
}

// ready tells what is missing until everything serves.
func (d *daemon) ready(ctx context.Context) error {
	d.mu.Lock()
	problem := d.problem
	d.mu.Unlock()
	if problem != nil {
		return problem
	}
	return d.servers.Ready(ctx)
}

const (
	settleTimeout  = 5 * time.Minute
	settleInterval = 50 * time.Millisecond
)

// settle makes a change of the world true and waits until it serves.
func (d *daemon) settle(ctx context.Context) error {
	if err := d.reconcile(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		err := d.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
