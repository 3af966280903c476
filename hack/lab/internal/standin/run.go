package standin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/imds"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/vpcdns"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// accountID is the AWS account that owns everything.
const accountID = "123456789012"

// watchInterval is how long a dead NFS server stays unnoticed.
const watchInterval = time.Second

// Run serves until the context ends. The NFS servers go on running: a later
// Run with the same configuration adopts them, and the lab stops them by their
// records.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.check(); err != nil {
		return err
	}
	root := ganesha.Root(cfg.GaneshaRoot)
	if err := root.Check(); err != nil {
		return err
	}
	d, err := newDaemon(cfg, &ganesha.Manager{
		Root: root, StateDir: filepath.Join(cfg.StateDir, "ganesha"), LogDir: cfg.LogDir,
		Processes: proc.Dir{Path: cfg.ProcDir}, Log: log,
	}, log)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

func newDaemon(cfg Config, servers exporter, log *slog.Logger) (*daemon, error) {
	if err := os.MkdirAll(cfg.StateDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the EFS stand-in's folder: %w", err)
	}
	store, err := world.Open(filepath.Join(cfg.StateDir, "world.json"), world.Options{
		Zones: cfg.Zones, NewID: world.RandomID, Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	certificates, err := terminator.NewCertificates(cfg.CACertFile, cfg.CAKeyFile, cfg.Region, time.Now())
	if err != nil {
		return nil, err
	}
	d := &daemon{cfg: cfg, log: log, world: store, faults: &efsapi.Faults{}, counters: &efsapi.Counters{}, servers: servers, problem: errNotYet}
	verifier := mountauth.Verifier{
		Region: cfg.Region, Key: mountauth.Key{AccessKeyID: cfg.AccessKeyID, SecretAccessKey: cfg.SecretAccessKey}, Now: time.Now,
	}
	d.targets = &terminator.Set{Certificates: certificates, Verifier: verifier, Route: d.route, Log: log}
	return d, nil
}

func (d *daemon) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.watch(ctx) })
	group.Go(func() error { return d.serveHTTP(ctx, "tcp", d.cfg.APIAddress, d.api()) })
	group.Go(func() error { return d.serveHTTP(ctx, "unix", d.cfg.AdminSocket, d.admin()) })
	if d.cfg.MetadataAddress != "" {
		group.Go(func() error { return d.serveHTTP(ctx, "tcp", d.cfg.MetadataAddress, d.metadata()) })
	}
	if d.cfg.DNSAddress != "" {
		group.Go(func() error { return d.resolver().Serve(ctx, d.cfg.DNSAddress) })
	}
	err := group.Wait()
	stopped := d.targets.Apply(context.WithoutCancel(ctx), nil)
	return errors.Join(err, stopped)
}

// watch brings everything back to what the world wants, again and again.
func (d *daemon) watch(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		d.reconcileAndLog(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *daemon) api() http.Handler {
	return efsapi.New(efsapi.Options{
		World: d.world, Faults: d.faults, Counters: d.counters,
		Region: d.cfg.Region, AccountID: accountID, VPCID: d.cfg.VPCID,
		Key: efsapi.Key{AccessKeyID: d.cfg.AccessKeyID, SecretAccessKey: d.cfg.SecretAccessKey}, Log: d.log,
	})
}

func (d *daemon) admin() http.Handler {
	return admin.NewHandler(admin.Options{
		World: d.world, Faults: d.faults, Counters: d.counters, Targets: d.targets,
		Reconcile: d.settle, Ready: d.ready, RemoveData: d.removeData,
	})
}

func (d *daemon) metadata() http.Handler {
	return imds.New(imds.Options{
		World: d.world, Region: d.cfg.Region, AccountID: accountID, VPCID: d.cfg.VPCID,
		AccessKeyID: d.cfg.AccessKeyID, SecretAccessKey: d.cfg.SecretAccessKey, Now: time.Now, Log: d.log,
	})
}

func (d *daemon) resolver() *vpcdns.Server {
	host, _, _ := net.SplitHostPort(d.cfg.APIAddress) // listening on it reports what is wrong
	return &vpcdns.Server{Options: vpcdns.Options{
		World: d.world, Region: d.cfg.Region, APIAddress: host, Hosts: d.cfg.Hosts, Log: d.log,
	}}
}

const headerTimeout = 30 * time.Second

func (d *daemon) serveHTTP(ctx context.Context, network, address string, handler http.Handler) error {
	if network == "unix" { // of a run that was killed
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an old socket: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	// Not Shutdown: calls that hang by order would hold it up.
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	d.log.Info("listening", "address", address)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", address, err)
	}
	return nil
}
