package agent_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"slices"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
	"gnuthought.com/efs-stunnel/pkg/tunnel/agent"
	"gnuthought.com/efs-stunnel/pkg/tunnel/certificates"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// shown is what a client showed to a server, "" for what it did not.
type shown struct{ fileSystem, accessPoint, accessKeyID string }

// strict is a mount target that asks its clients who they are.
type strict struct {
	*mountTarget
	mu    sync.Mutex
	shown []shown // guarded by mu; of every connection, in order
}

// strictTarget refuses clients whose certificate is none of EFS's; must says whether there must
// be one.
func (c *cluster) strictTarget(address string, must bool) *strict {
	s := &strict{}
	s.mountTarget = c.serve(address, func(config *tls.Config) {
		config.ClientAuth = tls.RequestClientCert
		if must {
			config.ClientAuth = tls.RequireAnyClientCert
		}
		config.VerifyConnection = func(state tls.ConnectionState) error {
			found := shown{}
			if len(state.PeerCertificates) > 0 {
				var err error
				if found, err = read(state.PeerCertificates[0]); err != nil {
					return err
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.shown = append(s.shown, found)
			return nil
		}
	})
	return s
}

// read takes the extensions apart without the product's code.
func read(c *x509.Certificate) (shown, error) {
	if err := c.CheckSignature(x509.SHA256WithRSA, c.RawTBSCertificate, c.Signature); err != nil {
		return shown{}, err
	}
	if now := time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return shown{}, errors.New("it is not valid now")
	}
	values := map[string]asn1.RawValue{}
	for _, e := range c.Extensions {
		var value asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &value); err != nil {
			return shown{}, err
		}
		values[e.Id.String()] = value
	}
	s := shown{
		fileSystem:  string(values["1.3.6.1.4.1.4843.7.3"].Bytes),
		accessPoint: string(values["1.3.6.1.4.1.4843.7.1"].Bytes),
	}
	if s.fileSystem == "" {
		return shown{}, errors.New("it names no file system")
	}
	if identity, ok := values["1.3.6.1.4.1.4843.7.2"]; ok {
		var id asn1.RawValue
		if _, err := asn1.Unmarshal(identity.Bytes, &id); err != nil {
			return shown{}, err
		}
		s.accessKeyID = string(id.Bytes)
	}
	return s, nil
}

// saw says whether a client showed this, at or after a number of connections.
func (s *strict) saw(want shown, since int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.shown[min(since, len(s.shown)):], want)
}

func (s *strict) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shown)
}

// wallet is where an agent gets its credentials from.
type wallet struct {
	mu          sync.Mutex
	credentials certificates.Credentials // guarded by mu
	err         error                    // guarded by mu
}

// put has credentials that expire after a while.
func (w *wallet) put(accessKeyID string, life time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = nil
	w.credentials = certificates.Credentials{
		Credentials: clientcert.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: "secret", SessionToken: "token"},
		Expires:     time.Now().Add(life),
	}
}

func (w *wallet) lose(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.New(why)
}

func (w *wallet) give(o *agent.Options) {
	o.Credentials = func(context.Context, string) (certificates.Credentials, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.credentials, w.err
	}
}

// supervised is the status of any tunnel.
func (p *pod) supervised(name string) supervise.Tunnel {
	p.Helper()
	status, err := supervise.ReadStatus(p.dir)
	if err != nil {
		p.Fatal(err)
	}
	return status.Tunnels[name]
}
