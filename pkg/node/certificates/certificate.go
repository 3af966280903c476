package certificates

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

const (
	// renewAfter is the age at which a certificate is renewed. EFS's own mount helper uses none
	// that is older than an hour.
	renewAfter = 55 * time.Minute
	// beforeExpiry is how long before its credentials expire a certificate is renewed, with the
	// credentials that the node has then.
	beforeExpiry = 10 * time.Minute
	// minDelay is between two requests for credentials while those that the node has are about to expire.
	minDelay = 5 * time.Second
	// Delays after failures; each is twice the one before.
	firstRetry, maxRetry = time.Second, time.Minute
	// clockTolerance is how far in the future the start of a certificate may be. One that is further
	// was made before the clock was set back.
	clockTolerance = time.Minute

	pemType = "CERTIFICATE"
)

// certificate is the client certificate of one tunnel.
type certificate struct {
	identity routing.Identity
	previous *certificate // the certificate that the tunnel uses until this one is made; nil afterwards
	der      []byte       // nil before it is made
	made     time.Time
	until    time.Time // when servers cease to accept it
	due      time.Time // when it is renewed or retried; zero for at once
	failures int       // in a row
	problem  string    // of the latest attempt; "" if that succeeded
}

// withIdentity is the certificate of a tunnel that needs an identity from now on. If the new one
// differs from the present one only in IAM, the present certificate is used until the new one is
// made: pods have volumes mounted through the tunnel.
func (c *certificate) withIdentity(identity routing.Identity) *certificate {
	switch {
	case c == nil:
	case c.identity == identity:
		return c
	case c.current().identity == identity:
		return c.current()
	case c.current().der != nil && identity.SameTarget(c.current().identity):
		return &certificate{identity: identity, previous: c.current()}
	}
	return &certificate{identity: identity}
}

// current is the certificate that stunnel presents to servers.
func (c *certificate) current() *certificate {
	if c.previous != nil {
		return c.previous
	}
	return c
}

// renewable are the certificates that are renewed. A previous one that needs credentials is not:
// with credentials, the one that replaces it can be made.
func (c *certificate) renewable() []*certificate {
	if c.previous != nil && !c.previous.identity.IAM {
		return []*certificate{c, c.previous}
	}
	return []*certificate{c}
}

// isDue says whether it is time to make or renew the certificate. One whose start is in the future
// was made while the clock was wrong, and a retry that is too far away was set then.
func (c *certificate) isDue(now time.Time) bool {
	if c.failures > 0 && c.due.After(now.Add(maxRetry)) {
		return true
	}
	return !now.Before(c.due) || c.der != nil && c.failures == 0 && c.made.After(now.Add(clockTolerance))
}

// load takes over the contents of a file if they are a certificate for this identity, or for one
// that differs only in IAM. The file does not say when its credentials expire, so a certificate with
// IAM is due at once.
func (c *certificate) load(text []byte, key *rsa.PublicKey) error {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return errors.New("the file is not a certificate in PEM")
	}
	contents, err := clientcert.Read(block.Bytes, key)
	if err != nil {
		return err
	}
	if contents.FileSystem != c.identity.FileSystem || contents.AccessPoint != c.identity.AccessPoint {
		return errors.New("the certificate is for another file system or access point")
	}
	loaded := c
	if iam := contents.AccessKeyID != ""; iam != c.identity.IAM {
		loaded = &certificate{identity: routing.Identity{FileSystem: contents.FileSystem, AccessPoint: contents.AccessPoint, IAM: iam}}
		c.previous = loaded
	}
	loaded.der, loaded.made, loaded.until = block.Bytes, contents.Made, contents.NotAfter
	if !loaded.identity.IAM {
		loaded.due = loaded.made.Add(renewAfter)
	}
	return nil
}

// request is what a certificate made at a time is made from.
func (c *certificate) request(node string, credentials Credentials, at time.Time) clientcert.Request {
	r := clientcert.Request{CommonName: node, FileSystem: c.identity.FileSystem, AccessPoint: c.identity.AccessPoint, Now: at}
	if c.identity.IAM {
		r.Region, r.Credentials = c.identity.Region, &credentials.Credentials
	}
	return r
}

// renew makes a new certificate. It returns nil if the present one is recent and was made from the
// same credentials: then it remains in use.
func (c *certificate) renew(key *rsa.PrivateKey, node string, credentials Credentials, now time.Time) (renewed []byte, err error) {
	if c.der != nil && now.Before(c.made.Add(renewAfter)) && !c.made.After(now.Add(clockTolerance)) {
		same, err := clientcert.Make(key, c.request(node, credentials, c.made))
		if err == nil && bytes.Equal(same, c.der) {
			return nil, nil
		}
	}
	return clientcert.Make(key, c.request(node, credentials, now))
}

// recordSuccess takes over the result of renew.
func (c *certificate) recordSuccess(renewed []byte, credentials Credentials, now time.Time) {
	c.failures, c.problem, c.previous = 0, "", nil
	if renewed != nil {
		c.der, c.made = renewed, now.Truncate(time.Second)
	}
	c.until, c.due = c.made.Add(clientcert.Lifetime), c.made.Add(renewAfter)
	if c.identity.IAM && !credentials.Expires.IsZero() {
		c.until = slices.MinFunc([]time.Time{c.until, credentials.Expires}, time.Time.Compare)
		c.due = slices.MinFunc([]time.Time{c.due, credentials.Expires.Add(-beforeExpiry)}, time.Time.Compare)
	}
	if soonest := now.Add(minDelay); c.due.Before(soonest) {
		c.due = soonest
	}
}

// recordFailure sets when the next attempt is due.
func (c *certificate) recordFailure(err error, now time.Time) {
	delay := firstRetry
	for range c.failures {
		delay = min(2*delay, maxRetry)
	}
	c.failures++
	c.problem, c.due = err.Error(), now.Add(delay)
}

func (c *certificate) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: c.der})
}

// status is what the agent reports of the certificate that is in use, at the path of its file.
func (c *certificate) status(file string) routing.Certificate {
	current := c.current()
	status := routing.Certificate{Identity: current.identity, File: file, Until: current.until, Problem: cmp.Or(c.problem, current.problem)}
	if current.der != nil {
		status.Sum = fmt.Sprintf("%x", sha256.Sum256(current.pem()))
	}
	return status
}

const keyType = "PRIVATE KEY" // PKCS #8

// ensureKey reads the key that an earlier run of the agent stored, or makes one, which takes a second.
func (r *Renewer) ensureKey() error {
	if r.key != nil {
		return nil
	}
	text, err := r.options.Dir.Key().Read()
	if err != nil {
		return err
	}
	key, err := readKey(text)
	if err != nil {
		if text != nil {
			r.options.Log.Warn("stored private key cannot be used; making a new one", "err", err)
		}
		if key, text, err = newKey(); err != nil {
			return err
		}
	}
	if err := r.options.Dir.Key().Write(text); err != nil {
		return err
	}
	r.key, r.keyPEM = key, text
	return nil
}

func readKey(text []byte) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("reading the private key: the file has no key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the private key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || key.N.BitLen() != clientcert.KeyBits {
		return nil, errors.New("reading the private key: it is not an RSA key of the expected size")
	}
	return key, nil
}

func newKey() (*rsa.PrivateKey, []byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, clientcert.KeyBits)
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}
