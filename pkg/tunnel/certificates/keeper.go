// Package certificates keeps the client certificates of a node's tunnels: it makes the node's
// key, makes each certificate when it is wanted, and makes it anew before servers would cease to
// take it. What it made before lies on disk, and serves for as long as nothing better can be had.
package certificates

import (
	"context"
	"crypto/rsa"
	"log/slog"
	"maps"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

const (
	// roundInterval is between two looks at the files. It bounds how late a renewal can be when
	// the clock is set, or the machine slept.
	roundInterval = time.Minute
	// credentialsTimeout bounds the wait for credentials, with the SDK's own retries.
	credentialsTimeout = 30 * time.Second
)

// Credentials are those of the node's IAM identity.
type Credentials struct {
	clientcert.Credentials
	Expires time.Time // zero for never
}

// Options are what a keeper works with.
type Options struct {
	Dir  confdir.Dir
	Node string // its name, which certificates carry
	// Credentials asks who the node is. It may wait for the network, and is asked only when a
	// certificate must prove it. The region is that of a file system.
	Credentials func(ctx context.Context, region string) (Credentials, error)
	// Changed is told of news. It must not wait.
	Changed func()
	Log     *slog.Logger
}

// Keeper is that of one node.
type Keeper struct {
	options Options
	wake    chan struct{} // holds one wish for a round

	mu     sync.Mutex
	wanted map[string]routing.Identity    // guarded by mu; itself never changed
	held   map[string]routing.Certificate // guarded by mu; itself never changed

	// What follows belongs to Run.
	key     *rsa.PrivateKey // nil until one was wanted
	keyText []byte          // the same in PEM
	papers  map[string]*paper
}

// New makes a keeper of which nothing is wanted yet.
func New(o Options) *Keeper {
	return &Keeper{options: o, wake: make(chan struct{}, 1), papers: map[string]*paper{}}
}

// Want says which tunnels need which certificates, from now on. The map must not be changed
// after that.
func (k *Keeper) Want(identities map[string]routing.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if maps.Equal(k.wanted, identities) {
		return
	}
	k.wanted = identities
	select {
	case k.wake <- struct{}{}:
	default: // a round will come anyway
	}
}

// Held are the certificates that there are, and the problems with those that there are not.
// Nobody may change the map.
func (k *Keeper) Held() map[string]routing.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held
}

// Run works until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		timer.Reset(k.round(ctx))
	}
}

// round does what is due, and says when to look again. Access points alone need no credentials,
// so they do not wait for those.
func (k *Keeper) round(ctx context.Context) time.Duration {
	k.mu.Lock()
	wanted := k.wanted
	k.mu.Unlock()
	k.follow(wanted)
	for _, iam := range []bool{false, true} {
		if due := k.due(iam, wallClock()); len(due) > 0 {
			k.renew(ctx, due)
		}
		k.show()
	}
	k.keepFiles()
	return k.pause(wallClock())
}

// wallClock leaves out the clock that stands still while a machine sleeps: servers' do not.
func wallClock() time.Time { return time.Now().Round(0) }

// follow forgets what is not wanted any more, and takes up from disk what is.
func (k *Keeper) follow(wanted map[string]routing.Identity) {
	papers := make(map[string]*paper, len(wanted))
	for name, identity := range wanted {
		papers[name] = k.papers[name].turned(identity)
	}
	k.papers = papers
}

// due are the certificates of one kind that are. A tunnel has at most one of each kind.
func (k *Keeper) due(iam bool, now time.Time) map[string]*paper {
	due := map[string]*paper{}
	for name, p := range k.papers {
		for _, each := range p.kept() {
			if each.identity.IAM == iam && each.isDue(now) {
				due[name] = each
			}
		}
	}
	return due
}

// show tells what there is, if it is news.
func (k *Keeper) show() {
	held := make(map[string]routing.Certificate, len(k.papers))
	for name, p := range k.papers {
		held[name] = p.certificate(k.options.Dir.CertificateFile(name))
	}
	k.mu.Lock()
	news := !maps.Equal(k.held, held)
	k.held = held
	k.mu.Unlock()
	if news {
		k.options.Changed()
	}
}

func (k *Keeper) pause(now time.Time) time.Duration {
	pause := roundInterval
	for _, p := range k.papers {
		for _, each := range p.kept() {
			pause = min(pause, max(0, each.due.Sub(now)))
		}
	}
	return pause
}
