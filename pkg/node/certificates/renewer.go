// Package certificates makes the client certificates of a node's tunnels, and the node's key that
// signs them, and renews each certificate before servers cease to accept it. Key and certificates
// are stored in files, so that a restart of the agent keeps them; a certificate that cannot be
// renewed remains in use.
package certificates

import (
	"context"
	"crypto/rsa"
	"log/slog"
	"maps"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

const (
	// syncInterval is the longest time between two syncs. It bounds how late a renewal can be after
	// the clock was set or the machine was suspended.
	syncInterval       = time.Minute
	credentialsTimeout = 30 * time.Second // for one request for credentials, with the SDK's retries
)

// Credentials are the AWS credentials of the node.
type Credentials struct {
	clientcert.Credentials
	Expires time.Time // zero for never
}

// Options are what a Renewer works with.
type Options struct {
	Dir  confdir.Dir
	Node string // its name, the common name of all certificates
	// Credentials gets the node's AWS credentials, for certificates with IAM only. It may use the
	// network. The region is the file system's.
	Credentials func(ctx context.Context, region string) (Credentials, error)
	// Changed is called when Certificates has changed. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Renewer makes and renews the client certificates of one node.
type Renewer struct {
	options Options
	wake    chan struct{} // holds at most one request to sync

	mu         sync.Mutex
	identities map[string]routing.Identity    // guarded by mu; the map itself never changes
	published  map[string]routing.Certificate // guarded by mu; the map itself never changes

	// Only Run uses the fields below.
	key          *rsa.PrivateKey // nil until a certificate is needed
	keyPEM       []byte          // the same in PEM
	certificates map[string]*certificate
}

// New makes a Renewer without any certificates.
func New(o Options) *Renewer {
	return &Renewer{options: o, wake: make(chan struct{}, 1), certificates: map[string]*certificate{}}
}

// SetIdentities sets which tunnels need client certificates, and for which identities. The caller
// must not change the map afterwards.
func (r *Renewer) SetIdentities(identities map[string]routing.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(r.identities, identities) {
		return
	}
	r.identities = identities
	select {
	case r.wake <- struct{}{}:
	default: // a sync is requested already
	}
}

// Certificates returns the certificates of all tunnels that need one, or the problems in making
// them. The caller must not change the map.
func (r *Renewer) Certificates() map[string]routing.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published
}

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
	r.mu.Lock()
	identities := r.identities
	r.mu.Unlock()
	r.updateIdentities(identities)
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

// updateIdentities drops the certificates of tunnels that need none any more, and adds new ones.
func (r *Renewer) updateIdentities(identities map[string]routing.Identity) {
	certificates := make(map[string]*certificate, len(identities))
	for name, identity := range identities {
		certificates[name] = r.certificates[name].withIdentity(identity)
	}
	r.certificates = certificates
}

// due are the certificates with or without IAM that must be made or renewed. A tunnel has at most
// one of each kind.
func (r *Renewer) due(iam bool, now time.Time) map[string]*certificate {
	due := map[string]*certificate{}
	for name, tunnel := range r.certificates {
		for _, c := range tunnel.renewable() {
			if c.identity.IAM == iam && c.isDue(now) {
				due[name] = c
			}
		}
	}
	return due
}

// publish updates what Certificates returns.
func (r *Renewer) publish() {
	published := make(map[string]routing.Certificate, len(r.certificates))
	for name, c := range r.certificates {
		published[name] = c.status(r.options.Dir.Certificate(name).Path())
	}
	r.mu.Lock()
	changed := !maps.Equal(r.published, published)
	r.published = published
	r.mu.Unlock()
	if changed {
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
