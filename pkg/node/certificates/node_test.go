package certificates_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
)

// Names of the tests' tunnels.
const (
	accessPointTunnel = "fs-1.fsap-1"
	iamTunnel         = "fs-2"
)

func accessPointIdentity() clientcert.Identity {
	return clientcert.Identity{FileSystem: "fs-1", AccessPoint: "fsap-1"}
}

func iamIdentity() clientcert.Identity {
	return clientcert.Identity{FileSystem: "fs-2", IAM: true, Region: "us-east-1"}
}

// sharedKey is made once, as it takes a second.
var sharedKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, clientcert.KeyBits) })

// node is a folder with the node's key, and the node's present credentials.
type node struct {
	*testing.T
	dir     confdir.Dir
	secret  string // the folder with the Secret of the client certificate
	key     *rsa.PrivateKey
	changes atomic.Int64

	mu          sync.Mutex
	credentials clientcert.Credentials // guarded by mu
	err         error                  // guarded by mu
	requests    int                    // guarded by mu
}

// inBubble runs a test with the fake clock of synctest.
func inBubble(t *testing.T, test func(n *node)) {
	t.Helper()
	key, err := sharedKey()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		dir, err := confdir.Open(filepath.Join(t.TempDir(), "stunnel.conf"))
		if err != nil {
			t.Fatal(err)
		}
		n := &node{T: t, dir: dir, secret: t.TempDir(), key: key, err: errors.New("there are none")}
		n.writeKey()
		test(n)
	})
}

func (n *node) writeKey() {
	n.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(n.key)
	if err != nil {
		n.Fatal(err)
	}
	if err := n.dir.Key().Write(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		n.Fatal(err)
	}
}

// start runs a renewer until the returned function is called.
func (n *node) start(wanted map[string]clientcert.Identity) (r *certificates.Renewer, end func()) {
	r = certificates.New(certificates.Options{
		Dir: n.dir, Node: "node-1", Credentials: n.fetchCredentials, Installed: n.secret,
		Changed: func() { n.changes.Add(1) }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(n.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.SetIdentities(wanted)
	synctest.Wait()
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	n.Cleanup(end)
	return r, end
}

func (n *node) fetchCredentials(_ context.Context, region string) (clientcert.Credentials, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests++
	if region != "us-east-1" {
		n.Errorf("asked for credentials in %q", region)
	}
	return n.credentials, n.err
}

// setCredentials gives the node credentials that expire after a while, 0 for never.
func (n *node) setCredentials(accessKeyID string, life time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = nil
	n.credentials = clientcert.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: "secret"}
	if life > 0 {
		n.credentials.SessionToken, n.credentials.Expires = "token of "+accessKeyID, time.Now().Add(life)
	}
}

func (n *node) setCredentialsError(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = errors.New(why)
}

func (n *node) requestCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

// after lets time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// contents reads a tunnel's file, which must be the published certificate.
func (n *node) contents(r *certificates.Renewer, name string) contents {
	n.Helper()
	text, err := n.dir.Certificate(name).Read()
	if err != nil {
		n.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		n.Fatalf("no certificate of %s: %q", name, text)
	}
	c := n.parse(block.Bytes)
	sum := sha256.Sum256(text)
	got := r.Certificates()[name]
	if got.Sum != hex.EncodeToString(sum[:]) || got.File != n.dir.Certificate(name).Path() {
		n.Errorf("got %+v, which is not of the file", got)
	}
	return c
}

// contents are the fields of a certificate.
type contents struct {
	FileSystem, AccessPoint, AccessKeyID string
	Made, NotAfter                       time.Time
}

func (n *node) parse(der []byte) contents {
	n.Helper()
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		n.Fatal(err)
	}
	var signed struct {
		AccessKeyID string `asn1:"utf8"`
		Signature   []byte
		SignedAt    time.Time `asn1:"utc"`
		Token       string    `asn1:"utf8,optional,explicit,tag:0"`
	}
	c := contents{Made: certificate.NotBefore.Add(15 * time.Minute), NotAfter: certificate.NotAfter}
	for _, e := range certificate.Extensions {
		field, params := map[string]any{
			"1.3.6.1.4.1.4843.7.1": &c.AccessPoint, "1.3.6.1.4.1.4843.7.2": &signed, "1.3.6.1.4.1.4843.7.3": &c.FileSystem,
		}[e.Id.String()], "utf8"
		if field == nil {
			continue
		}
		if field == any(&signed) {
			params = ""
		}
		if _, err := asn1.UnmarshalWithParams(e.Value, field, params); err != nil {
			n.Fatal(err)
		}
	}
	c.AccessKeyID = signed.AccessKeyID
	return c
}
