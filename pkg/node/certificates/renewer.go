// Package certificates makes the client certificates of a node's tunnels, and the node's key that
// signs them, and renews each certificate before servers cease to accept it. Key and certificates
// are stored in files, so that a restart of the agent keeps them; a certificate that cannot be
// renewed remains in use.
package certificates

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

const (
	// syncInterval is the longest time between two syncs. It bounds how late a renewal can be after
	// the clock was set or the machine was suspended.
	syncInterval       = time.Minute
	credentialsTimeout = 30 * time.Second // for one request for credentials, with the SDK's retries
)

// Options are what a Renewer works with.
type Options struct {
	Dir  confdir.Dir
	Node string // its name, the common name of all certificates
	// Credentials gets the node's AWS credentials, for certificates with IAM only. It may use the
	// network. The region is the file system's.
	Credentials func(ctx context.Context, region string) (clientcert.Credentials, error)
	// Installed is the directory with the certificate and the key, tls.crt and tls.key, that an administrator has
	// given the agents, for identities that are Installed.
	Installed string
	// Changed is called when Certificates has changed. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Renewer makes and renews the client certificates of one node.
type Renewer struct {
	options Options
	wake    loop.Wake // of the sync

	identities atomic.Pointer[map[string]clientcert.Identity] // the map itself never changes
	published  atomic.Pointer[map[string]routing.Certificate] // the map itself never changes

	// Only Run uses the fields below.
	key          *rsa.PrivateKey // nil until a certificate is needed
	keyPEM       []byte          // the same in PEM
	certificates map[string]*certificate
}

// New makes a Renewer without any certificates.
func New(o Options) *Renewer {
	r := &Renewer{options: o, wake: loop.NewWake(), certificates: map[string]*certificate{}}
	r.identities.Store(&map[string]clientcert.Identity{})
	r.published.Store(&map[string]routing.Certificate{})
	return r
}

// SetIdentities sets which tunnels need client certificates, and for which identities. The caller
// must not change the map afterwards.
func (r *Renewer) SetIdentities(identities map[string]clientcert.Identity) {
	if before := r.identities.Swap(&identities); !maps.Equal(*before, identities) {
		r.wake.Request()
	}
}

// Certificates returns the certificates of all tunnels that need one, or the problems in making
// them. The caller must not change the map.
func (r *Renewer) Certificates() map[string]routing.Certificate { return *r.published.Load() }

// Run makes and renews certificates until the context ends.
func (r *Renewer) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.sync(ctx))
	}
}

// sync makes and renews what is due, and returns the time until the next sync. Certificates
// without IAM come first, as they do not wait for credentials.
func (r *Renewer) sync(ctx context.Context) time.Duration {
	certificates := map[string]*certificate{} // without those of tunnels that need none any more
	for name, identity := range *r.identities.Load() {
		certificates[name] = r.certificates[name].withIdentity(identity)
	}
	r.certificates = certificates
	for _, iam := range []bool{false, true} {
		if due := r.due(iam, wallClock()); len(due) > 0 {
			r.renew(ctx, due)
		}
		r.publish()
	}
	r.restoreFiles()
	return r.untilDue(wallClock())
}

// wallClock is the time without Go's monotonic reading, which stops while a machine is suspended:
// the servers' clocks do not.
func wallClock() time.Time { return time.Now().Round(0) }

// due are the certificates with or without IAM that must be made or renewed. A tunnel has at most
// one of each kind.
func (r *Renewer) due(iam bool, now time.Time) map[string]*certificate {
	due := map[string]*certificate{}
	for name, tunnel := range r.certificates {
		for _, c := range tunnel.renewable() {
			if c.Identity.IAM == iam && c.isDue(now) {
				due[name] = c
			}
		}
	}
	return due
}

func (r *Renewer) publish() {
	published := make(map[string]routing.Certificate, len(r.certificates))
	for name, c := range r.certificates {
		published[name] = c.status(r.options.Dir.Certificate(name).Path(), r.options.Dir.Key().Path())
	}
	if before := r.published.Swap(&published); !maps.Equal(*before, published) {
		r.options.Changed()
	}
}

// untilDue is the time until the next certificate is due, at most syncInterval.
func (r *Renewer) untilDue(now time.Time) time.Duration {
	wait := syncInterval
	for _, tunnel := range r.certificates {
		for _, c := range tunnel.renewable() {
			wait = min(wait, max(0, c.due.Sub(now)))
		}
	}
	return wait
}

// renew makes or renews the certificates that are due. A failure for one tunnel affects no other.
func (r *Renewer) renew(ctx context.Context, due map[string]*certificate) {
	ensureKey, fetched := sync.OnceValue(r.ensureKey), fetchedCredentials{}
	for _, name := range slices.Sorted(maps.Keys(due)) {
		c := due[name]
		next, err := r.next(ctx, name, c, ensureKey, fetched)
		if ctx.Err() != nil {
			return // the agent's end is not a failure of the certificate
		}
		if err == nil {
			err = r.replace(name, c, next)
		}
		if err != nil {
			r.fail(name, c, err)
		}
	}
}

// next reads or makes the certificate that takes the place of one, which may be that of the file.
func (r *Renewer) next(
	ctx context.Context, name string, c *certificate, ensureKey func() error, fetched fetchedCredentials,
) (*certificate, error) {
	if c.Identity.Installed {
		return c.read(r.options.Installed, wallClock())
	}
	if err := ensureKey(); err != nil {
		return nil, err
	}
	if r.load(name, c); !c.isDue(wallClock()) {
		return c, nil
	}
	var credentials clientcert.Credentials
	if c.Identity.IAM {
		var err error
		if credentials, err = r.credentials(ctx, c.Identity.Region, fetched); err != nil {
			return nil, err
		}
	}
	return c.renewed(r.key, r.options.Node, credentials, wallClock())
}

// load reads the certificate that an earlier run of the agent wrote.
func (r *Renewer) load(name string, c *certificate) {
	if c.current().file != nil || c.failures > 0 {
		return
	}
	text, err := r.options.Dir.Certificate(name).Read()
	if err == nil && text != nil {
		err = c.load(text, r.keyPEM)
	}
	if err != nil {
		r.logOf(name).Info("stored client certificate cannot be used; making a new one", "err", err)
	}
}

// fail logs the first failure in a row.
func (r *Renewer) fail(name string, c *certificate, err error) {
	now, first := wallClock(), c.problem == ""
	c.recordFailure(err, now)
	if first {
		r.logOf(name).Warn("client certificate cannot be made or renewed", "err", err, "requeueAfter", c.due.Sub(now))
	}
}

// replace stores the next certificate in the file before it is published.
func (r *Renewer) replace(name string, c, next *certificate) error {
	if err := r.options.Dir.Certificate(name).Write(next.file); err != nil {
		return err
	}
	if c.problem != "" {
		r.logOf(name).Info("client certificate can be renewed again")
	}
	*c = *next
	return nil
}

// fetchedCredentials return, by region, the result of the one request for credentials in a sync.
type fetchedCredentials map[string]func() (clientcert.Credentials, error)

func (r *Renewer) credentials(ctx context.Context, region string, fetched fetchedCredentials) (clientcert.Credentials, error) {
	if region == "" {
		return clientcert.Credentials{}, errors.New("the region is not known for which it must be signed")
	}
	if fetched[region] == nil {
		fetched[region] = sync.OnceValues(func() (clientcert.Credentials, error) {
			ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
			defer cancel()
			return r.options.Credentials(ctx, region)
		})
	}
	credentials, err := fetched[region]()
	if err != nil {
		return clientcert.Credentials{}, fmt.Errorf("looking for AWS credentials: %w", err)
	}
	return credentials, nil
}

// restoreFiles writes the files that were removed or changed by others.
func (r *Renewer) restoreFiles() {
	var errs []error
	if r.key != nil && len(r.certificates) > 0 {
		errs = append(errs, r.options.Dir.Key().Write(r.keyPEM))
	}
	for name, c := range r.certificates {
		if current := c.current(); current.file != nil {
			errs = append(errs, r.options.Dir.Certificate(name).Write(current.file))
		}
	}
	if err := logging.Errors(errs...); err != nil {
		r.options.Log.Warn("files of client certificates cannot be written", "err", err)
	}
}

func (r *Renewer) logOf(name string) *slog.Logger { return logging.ForTunnel(r.options.Log, name) }
