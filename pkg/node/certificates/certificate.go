package certificates

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	header
	file     []byte       // header and certificate in PEM; nil before it is made
	previous *certificate // the certificate that the tunnel uses until this one is made; nil afterwards
	due      time.Time    // when it is renewed or retried; zero for at once
	failures int          // in a row
	problem  string       // of the latest attempt; "" if that succeeded
}

// header is the first line of a certificate's file, in JSON. OpenSSL skips it.
type header struct {
	Identity clientcert.Identity `json:"identity"`
	Made     time.Time           `json:"made"`
	Until    time.Time           `json:"until"`              // when servers cease to accept it
	SignedBy string              `json:"signedBy,omitempty"` // sum of credentials and region; "" without IAM
}

// withIdentity is the certificate of a tunnel that needs an identity from now on. If the new one
// differs from the present one only in IAM, the present certificate is used until the new one is
// made: pods have volumes mounted through the tunnel.
func (c *certificate) withIdentity(identity clientcert.Identity) *certificate {
	switch {
	case c == nil:
	case c.Identity == identity:
		return c
	case c.current().Identity == identity:
		return c.current()
	case c.current().file != nil && identity.SameTarget(c.current().Identity):
		return &certificate{header: header{Identity: identity}, previous: c.current()}
	}
	return &certificate{header: header{Identity: identity}}
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
	if c.previous != nil && !c.previous.Identity.IAM {
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
	return !now.Before(c.due) || c.file != nil && c.failures == 0 && c.Made.After(now.Add(clockTolerance))
}

// load takes over the contents of a file if they are a certificate for this identity, or for one
// that differs only in IAM. The node may have other credentials by now, so a certificate with IAM is
// due at once.
func (c *certificate) load(text, key []byte) error {
	var h header
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("reading the first line of a client certificate: %w", err)
	}
	if _, err := tls.X509KeyPair(text, key); err != nil {
		return fmt.Errorf("reading a client certificate: %w", err)
	}
	if !h.Identity.SameTarget(c.Identity) {
		return errors.New("the certificate is for another file system or access point")
	}
	loaded := c
	if h.Identity.IAM != c.Identity.IAM {
		loaded = &certificate{header: header{Identity: h.Identity}}
		c.previous = loaded
	}
	h.Identity = loaded.Identity // of which the region may have changed
	loaded.header, loaded.file = h, text
	if !h.Identity.IAM {
		loaded.due = h.Made.Add(renewAfter)
	}
	return nil
}

// renewed returns the certificate as it is made from credentials. One that is recent and was signed with
// the same credentials remains in use.
func (c *certificate) renewed(key *rsa.PrivateKey, node string, credentials clientcert.Credentials, now time.Time) (*certificate, error) {
	next := &certificate{header: header{Identity: c.Identity, Made: c.Made}, file: c.file}
	if c.Identity.IAM {
		next.SignedBy = fmt.Sprintf("%x", sha256.Sum256([]byte(c.Identity.Region+credentials.AccessKeyID+credentials.SessionToken)))
	}
	isRecent := now.Before(c.Made.Add(renewAfter)) && !c.Made.After(now.Add(clockTolerance))
	isKept := c.file != nil && isRecent && next.SignedBy == c.SignedBy
	if !isKept {
		next.Made = now.Truncate(time.Second)
	}
	next.Until, next.due = next.Made.Add(clientcert.Lifetime), next.Made.Add(renewAfter)
	if c.Identity.IAM && !credentials.Expires.IsZero() {
		next.Until = slices.MinFunc([]time.Time{next.Until, credentials.Expires}, time.Time.Compare)
		next.due = slices.MinFunc([]time.Time{next.due, credentials.Expires.Add(-beforeExpiry)}, time.Time.Compare)
	}
	if soonest := now.Add(minDelay); next.due.Before(soonest) {
		next.due = soonest
	}
	if isKept {
		return next, nil
	}
	return next, next.make(key, node, credentials)
}

func (c *certificate) make(key *rsa.PrivateKey, node string, credentials clientcert.Credentials) error {
	der, err := clientcert.Make(key, clientcert.Request{Identity: c.Identity, CommonName: node, Credentials: credentials, Now: c.Made})
	if err != nil {
		return err
	}
	line, err := json.Marshal(c.header)
	c.file = slices.Concat(line, []byte("\n"), pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
	return err
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

// status is what the agent reports of the certificate that is in use, at the path of its file. One that was read has
// its key in the same file; all others have the node's.
func (c *certificate) status(file, nodeKey string) routing.Certificate {
	current := c.current()
	key := nodeKey
	if current.Identity.Installed {
		key = file
	}
	status := routing.Certificate{Identity: current.Identity, File: file, Key: key, Until: current.Until, Problem: cmp.Or(c.problem, current.problem)}
	if current.file != nil {
		status.Sum = fmt.Sprintf("%x", sha256.Sum256(current.file))
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
	var der []byte
	if err == nil {
		der, err = x509.MarshalPKCS8PrivateKey(key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}
