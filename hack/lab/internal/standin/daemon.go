package standin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// nfsPort is the port of mount targets.
const nfsPort = "2049"

// exporter runs the NFS servers.
type exporter interface {
	Apply(ctx context.Context, exports []ganesha.Export) error
	Address(name string) (string, bool)
	Ready(ctx context.Context) error
}

// daemon is a running stand-in.
type daemon struct {
	lab       state.Lab
	log       *slog.Logger
	inventory *inventory.Store
	faults    *efsapi.Faults
	counters  *efsapi.Counters
	servers   exporter
	targets   *terminator.Set

	reconciling sync.Mutex // held during a reconciliation

	mu       sync.Mutex
	problem  error            // guarded by mu; of the last reconciliation
	unserved map[string]error // guarded by mu; access points without a root directory
}

// errNotReconciled is the problem before the first reconciliation.
var errNotReconciled = errors.New("still starting")

// reconcile brings addresses, NFS servers and mount targets in line with the inventory.
func (d *daemon) reconcile(ctx context.Context) error {
	d.reconciling.Lock()
	defer d.reconciling.Unlock()
	snapshot := d.inventory.Snapshot()
	problem := errors.Join(
		reconcileAddresses(ctx, snapshot),
		d.reconcileServers(ctx, snapshot),
		d.targets.Apply(ctx, specs(snapshot)),
	)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = problem
	return problem
}

// reconcileAndLog logs a problem once, not at each reconciliation.
func (d *daemon) reconcileAndLog(ctx context.Context) {
	d.mu.Lock()
	before := d.problem
	d.mu.Unlock()
	after := d.reconcile(ctx)
	if after != nil && ctx.Err() == nil && fmt.Sprint(before) != fmt.Sprint(after) {
		d.log.Error("not everything is served", "err", after)
	}
}

func (d *daemon) reconcileServers(ctx context.Context, snapshot inventory.Snapshot) error {
	var exports []ganesha.Export
	unserved := map[string]error{}
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(snapshot.FileSystems)) {
		dir := d.dataDir(id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			problems = append(problems, fmt.Errorf("making the root directory of %s: %w", id, err))
			continue
		}
		exports = append(exports, ganesha.Export{Name: id, Dir: dir})
		for _, p := range snapshot.AccessPointsOf(id) {
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

func specs(snapshot inventory.Snapshot) []terminator.Spec {
	list := make([]terminator.Spec, 0, len(snapshot.MountTargets))
	for _, t := range snapshot.MountTargets {
		var addresses []string
		for _, address := range t.Addresses() {
			addresses = append(addresses, net.JoinHostPort(address, nfsPort))
		}
		list = append(list, terminator.Spec{ID: t.ID, FileSystemID: t.FileSystemID, Address: strings.Join(addresses, ",")})
	}
	return list
}

func (d *daemon) dataDir(fileSystemID string) string {
	return stateDir(d.lab, "data", fileSystemID)
}

func (d *daemon) removeData(fileSystemID string) error {
	if err := os.RemoveAll(d.dataDir(fileSystemID)); err != nil {
		return fmt.Errorf("removing the files of %s: %w", fileSystemID, err)
	}
	return nil
}

// ready returns what is missing until everything serves.
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

// settle reconciles after a change of the inventory, and waits until everything serves.
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
