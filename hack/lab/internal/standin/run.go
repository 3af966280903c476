// Package standin imitates Amazon EFS inside a lab's network: its API, its mount targets with TLS,
// the metadata service of EC2 and the VPC's resolver. It fails on demand. The NFS servers behind the
// mount targets are real.
package standin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/imds"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/vpcdns"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// accountID is the AWS account that owns all resources.
const accountID = "123456789012"

// The one pair of credentials that the stand-in accepts. It is valid in labs only, so it need not be
// secret.
const (
	accessKeyID     = "AKIALABLABLABLABLAB0"
	secretAccessKey = "the-secret-of-every-lab"
)

// efsCA signs the mount targets' certificates, in place of Amazon's authorities.
const efsCA = "efs-ca"

// CAFile returns the path of the certificate of the authority that clients of the mount targets must trust.
func CAFile(lab state.Lab) string { return lab.PKI().Pair(efsCA).CertFile }

// watchInterval is after how long at most an NFS server that died is restarted.
const watchInterval = time.Second

// Run serves until the context ends. The NFS servers keep running: a later Run for the same lab adopts
// them, and the lab stops them by their records.
func Run(ctx context.Context, lab state.Lab, root ganesha.Root, log *slog.Logger) error {
	if err := root.Check(); err != nil {
		return err
	}
	d, err := newDaemon(lab, &ganesha.Manager{
		Root: root, StateDir: stateDir(lab, "ganesha"), LogDir: lab.Path("logs"), Processes: lab.Parts(), Log: log,
	}, log)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

// stateDir joins names below the folder of the stand-in's files.
func stateDir(lab state.Lab, elem ...string) string {
	return lab.Path(append([]string{"efs"}, elem...)...)
}

func newDaemon(lab state.Lab, servers exporter, log *slog.Logger) (*daemon, error) {
	if err := os.MkdirAll(stateDir(lab), 0o755); err != nil {
		return nil, fmt.Errorf("making the EFS stand-in's folder: %w", err)
	}
	settings, _, err := lab.LoadOrDefault()
	if err != nil {
		return nil, err
	}
	addresses := inventory.IPv4
	if settings.IPv6Only {
		addresses = inventory.IPv6
	}
	store, err := inventory.Open(stateDir(lab, "inventory.json"), inventory.Options{
		Zones: state.Zones(), AddressType: addresses, NewID: inventory.RandomID, Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	ca, err := lab.PKI().Authority(efsCA)
	if err != nil {
		return nil, err
	}
	certificates, err := terminator.NewCertificates(ca, state.Region)
	if err != nil {
		return nil, err
	}
	d := &daemon{lab: lab, log: log, inventory: store, faults: &efsapi.Faults{}, counters: &efsapi.Counters{}, servers: servers, problem: errNotReconciled}
	verifier := mountauth.Verifier{
		Region: state.Region, Key: mountauth.Key{AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey}, Now: time.Now,
	}
	d.targets = &terminator.Set{Certificates: certificates, Verifier: verifier, Route: d.route, Log: log}
	return d, nil
}

func (d *daemon) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.watch(ctx) })
	group.Go(func() error { return d.serveHTTP(ctx, "tcp", fmt.Sprintf(":%d", state.EFSAPIPort), d.api()) })
	group.Go(func() error { return d.serveHTTP(ctx, "unix", d.lab.StandinSocket(), d.admin()) })
	for _, address := range []string{state.MetadataAddress, state.MetadataIPv6} {
		group.Go(func() error { return d.serveHTTP(ctx, "tcp", net.JoinHostPort(address, "80"), d.metadata()) })
	}
	for _, address := range hostAddresses() { // each of its own: answers must come from the address that was asked
		group.Go(func() error { return d.resolver().Serve(ctx, net.JoinHostPort(address, "53")) })
	}
	err := group.Wait()
	stopped := d.targets.Apply(context.WithoutCancel(ctx), nil)
	return errors.Join(err, stopped)
}

// watch reconciles periodically, which restarts NFS servers that died.
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
		Inventory: d.inventory, Faults: d.faults, Counters: d.counters,
		Region: state.Region, AccountID: accountID, VPCID: state.VPCID,
		Key: efsapi.Key{AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey}, Log: d.log,
	})
}

func (d *daemon) admin() http.Handler {
	return admin.NewHandler(admin.Options{
		Inventory: d.inventory, Faults: d.faults, Counters: d.counters, Targets: d.targets,
		Reconcile: d.settle, Ready: d.ready, RemoveData: d.removeData,
	})
}

func (d *daemon) metadata() http.Handler {
	return imds.New(imds.Options{
		Inventory: d.inventory, Region: state.Region, AccountID: accountID, VPCID: state.VPCID,
		AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, Now: time.Now, Log: d.log,
	})
}

func (d *daemon) resolver() *vpcdns.Server {
	return &vpcdns.Server{Options: vpcdns.Options{
		Inventory: d.inventory, Region: state.Region, APIAddresses: hostAddresses(),
		Hosts: map[string][]string{state.RegistryHost: hostAddresses()}, Log: d.log,
	}}
}

func hostAddresses() []string { return []string{state.HostAddress, state.HostIPv6} }

const headerTimeout = 30 * time.Second

func (d *daemon) serveHTTP(ctx context.Context, network, address string, handler http.Handler) error {
	if network == "unix" { // a run that was killed leaves its socket
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the socket of an earlier run: %w", err)
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
	// Not Shutdown, which would wait for calls that a fault makes hang.
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	d.log.Info("listening", "address", address)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", address, err)
	}
	return nil
}
