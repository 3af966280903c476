package certificates

import (
	"bytes"
	"cmp"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"time"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

const (
	// renewAfter is the age at which a certificate gives way to a fresh one. EFS's own mount
	// helper lets none grow older than an hour.
	renewAfter = 55 * time.Minute
	// beforeExpiry is how long before its credentials expire a certificate is made anew, with
	// those that the chain has then.
	beforeExpiry = 10 * time.Minute
	// leastPause is between two looks at credentials that expire, of which there are no newer.
	leastPause = 5 * time.Second
	// Waits after failures, which double.
	firstRetry, maxRetry = time.Second, time.Minute
	// clockSet is how far in the future a certificate is made only before the clock was set back.
	clockSet = time.Minute

	pemType = "CERTIFICATE"
)

// paper is one tunnel's certificate.
type paper struct {
	identity routing.Identity
	// former is what the tunnel showed before this was wanted; nil as soon as there is this.
	former   *paper
	der      []byte // nil while there is none
	made     time.Time
	until    time.Time // when servers cease to take it
	due      time.Time // for the next look; zero for at once
	failures int       // in a row
	problem  string    // of the latest try
}

// turned is the paper of a tunnel that wants an identity from now on. One that differs only in how
// the node proves itself keeps what is shown: others are served through that tunnel.
func (p *paper) turned(identity routing.Identity) *paper {
	switch {
	case p == nil:
	case p.identity == identity:
		return p
	case p.shown().identity == identity:
		return p.shown()
	case p.shown().der != nil && identity.SameTarget(p.shown().identity):
		return &paper{identity: identity, former: p.shown()}
	}
	return &paper{identity: identity}
}

// shown is what servers are shown.
func (p *paper) shown() *paper {
	if p.former != nil {
		return p.former
	}
	return p
}

// kept are those that are renewed. A former one that needs credentials is not: where there are
// any, the one that is wanted can be made.
func (p *paper) kept() []*paper {
	if p.former != nil && !p.former.identity.IAM {
		return []*paper{p, p.former}
	}
	return []*paper{p}
}

// isDue: what was made in the future was made by another clock.
func (p *paper) isDue(now time.Time) bool {
	return !now.Before(p.due) || p.der != nil && p.failures == 0 && p.made.After(now.Add(clockSet))
}

// load takes up what lies on disk, if it is what is wanted, or was until that changed. When the
// credentials of it expire is not written there, so a look at those is due at once.
func (p *paper) load(text []byte, key *rsa.PublicKey) error {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return errNoCertificate
	}
	c, err := clientcert.Read(block.Bytes, key)
	if err != nil {
		return err
	}
	if c.FileSystem != p.identity.FileSystem || c.AccessPoint != p.identity.AccessPoint {
		return errOther
	}
	loaded := p
	if iam := c.AccessKeyID != ""; iam != p.identity.IAM {
		loaded = &paper{identity: routing.Identity{FileSystem: c.FileSystem, AccessPoint: c.AccessPoint, IAM: iam}}
		p.former = loaded
	}
	loaded.der, loaded.made, loaded.until = block.Bytes, c.Made, c.NotAfter
	if !loaded.identity.IAM {
		loaded.due = loaded.made.Add(renewAfter)
	}
	return nil
}

var (
	errNoCertificate = errors.New("it is no certificate in PEM")
	errOther         = errors.New("it is the certificate of something else")
)

// request is what the certificate of a time is made from.
func (p *paper) request(node string, c Credentials, at time.Time) clientcert.Request {
	r := clientcert.Request{CommonName: node, FileSystem: p.identity.FileSystem, AccessPoint: p.identity.AccessPoint, Now: at}
	if p.identity.IAM {
		r.Region, r.Credentials = p.identity.Region, &c.Credentials
	}
	return r
}

// renew makes a certificate, unless the one there is would be made again from the same
// credentials and is not old. It says whether there is another one to be written.
func (p *paper) renew(key *rsa.PrivateKey, node string, c Credentials, now time.Time) (fresh []byte, err error) {
	if p.der != nil && now.Before(p.made.Add(renewAfter)) && !p.made.After(now.Add(clockSet)) {
		same, err := clientcert.Make(key, p.request(node, c, p.made))
		if err == nil && bytes.Equal(same, p.der) {
			return nil, nil
		}
	}
	return clientcert.Make(key, p.request(node, c, now))
}

// succeed notes what holds from now on; fresh is nil when it holds longer.
func (p *paper) succeed(fresh []byte, c Credentials, now time.Time) {
	p.failures, p.problem, p.former = 0, "", nil
	if fresh != nil {
		p.der, p.made = fresh, now.Truncate(time.Second)
	}
	p.until, p.due = p.made.Add(clientcert.Lifetime), p.made.Add(renewAfter)
	if p.identity.IAM && !c.Expires.IsZero() {
		p.until = earlier(p.until, c.Expires)
		p.due = earlier(p.due, c.Expires.Add(-beforeExpiry))
	}
	if soonest := now.Add(leastPause); p.due.Before(soonest) {
		p.due = soonest
	}
}

func (p *paper) fail(err error, now time.Time) {
	wait := firstRetry
	for range p.failures {
		wait = min(2*wait, maxRetry)
	}
	p.failures++
	p.problem, p.due = err.Error(), now.Add(wait)
}

func (p *paper) text() []byte { return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: p.der}) }

// certificate is what others are told.
func (p *paper) certificate(file string) routing.Certificate {
	shown := p.shown()
	c := routing.Certificate{Identity: shown.identity, File: file, Until: shown.until, Problem: cmp.Or(p.problem, shown.problem)}
	if shown.der != nil {
		sum := sha256.Sum256(shown.text())
		c.Sum = hex.EncodeToString(sum[:])
	}
	return c
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
