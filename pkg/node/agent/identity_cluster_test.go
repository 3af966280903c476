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

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
)

// clientIdentity is that of a client's certificate; "" for what it lacks.
type clientIdentity struct{ fileSystem, accessPoint, accessKeyID string }

// authenticating is a mount target that requests client certificates.
type authenticating struct {
	*mountTarget
	mu      sync.Mutex
	clients []clientIdentity // guarded by mu; of every connection, in order
}

// authenticatingTarget refuses clients whose certificate is not as EFS expects it, and those without
// one if it is required.
func (c *cluster) authenticatingTarget(address string, required bool) *authenticating {
	s := &authenticating{}
	s.mountTarget = c.serve(address, func(config *tls.Config) {
		config.ClientAuth = tls.RequestClientCert
		if required {
			config.ClientAuth = tls.RequireAnyClientCert
		}
		config.VerifyConnection = func(state tls.ConnectionState) error {
			found := clientIdentity{}
			if len(state.PeerCertificates) > 0 {
				var err error
				if found, err = read(state.PeerCertificates[0]); err != nil {
					return err
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.clients = append(s.clients, found)
			return nil
		}
	})
	return s
}

// read decodes the extensions without the code under test.
func read(c *x509.Certificate) (clientIdentity, error) {
	if err := c.CheckSignature(x509.SHA256WithRSA, c.RawTBSCertificate, c.Signature); err != nil {
		return clientIdentity{}, err
	}
	if now := time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return clientIdentity{}, errors.New("it is not valid now")
	}
	values := map[string]asn1.RawValue{}
	for _, e := range c.Extensions {
		var value asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &value); err != nil {
			return clientIdentity{}, err
		}
		values[e.Id.String()] = value
	}
	s := clientIdentity{
		fileSystem:  string(values["1.3.6.1.4.1.4843.7.3"].Bytes),
		accessPoint: string(values["1.3.6.1.4.1.4843.7.1"].Bytes),
	}
	if s.fileSystem == "" {
		return clientIdentity{}, errors.New("it names no file system")
	}
	if identity, ok := values["1.3.6.1.4.1.4843.7.2"]; ok {
		var id asn1.RawValue
		if _, err := asn1.Unmarshal(identity.Bytes, &id); err != nil {
			return clientIdentity{}, err
		}
		s.accessKeyID = string(id.Bytes)
	}
	return s, nil
}

// saw reports whether a client had this identity, after the first since connections.
func (s *authenticating) saw(want clientIdentity, since int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.clients[min(since, len(s.clients)):], want)
}

func (s *authenticating) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// credentialSource is where an agent gets its AWS credentials from.
type credentialSource struct {
	mu          sync.Mutex
	credentials clientcert.Credentials // guarded by mu
	err         error                  // guarded by mu
}

// put sets credentials that expire after their lifetime.
func (w *credentialSource) put(accessKeyID string, lifetime time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = nil
	w.credentials = clientcert.Credentials{
		AccessKeyID: accessKeyID, SecretAccessKey: "secret", SessionToken: "token",
		Expires: time.Now().Add(lifetime),
	}
}

func (w *credentialSource) fail(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.New(message)
}

func (w *credentialSource) use(o *agent.Options) {
	o.Credentials = func(context.Context, string) (clientcert.Credentials, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.credentials, w.err
	}
}

// supervised returns the supervisor's status of a tunnel.
func (p *pod) supervised(name string) tunnelspec.TunnelStatus {
	p.Helper()
	status, err := supervise.ReadStatus(p.dir)
	if err != nil {
		p.Fatal(err)
	}
	return status.Tunnels[name]
}
