// Package pki issues certificates from the lab's own authorities, which are trusted only in the lab.
package pki

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 10 * 365 * 24 * time.Hour

// Request describes a certificate.
type Request struct {
	CommonName   string
	Organization string        // "" = none; Kubernetes reads it as a group
	Hosts        []string      // DNS names and IP addresses of a server; nil for a client
	ValidFor     time.Duration // from now; 0 = as long as a lab may exist
}

func (r Request) template() *x509.Certificate {
	template := newTemplate(r.CommonName, cmp.Or(r.ValidFor, lifetime))
	if r.Organization != "" {
		template.Subject.Organization = []string{r.Organization}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return template
}

func newTemplate(commonName string, validFor time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails: crypto/rand ends the program instead
	// The nodes' clocks start with the machine's and may be behind it. A certificate that has expired
	// was valid before, too.
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    time.Now().Add(min(0, validFor) - time.Hour),
		NotAfter:     time.Now().Add(validFor),
	}
}

// Authority issues certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
}

// NewAuthority makes an authority that signs itself.
func NewAuthority(name string) (*Authority, tls.Certificate, error) {
	template := newTemplate(name, lifetime)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	own, err := issue(template, nil)
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("making authority %s: %w", name, err)
	}
	return &Authority{own.Leaf, own.PrivateKey}, own, nil
}

// LoadAuthority reads an authority's files.
func LoadAuthority(pair Pair) (*Authority, error) {
	own, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading authority: %w", err)
	}
	return &Authority{own.Leaf, own.PrivateKey}, nil
}

// Issue makes a certificate for clients, and for servers if the request has hosts.
func (a *Authority) Issue(r Request) (tls.Certificate, error) { return issue(r.template(), a) }

// issue makes a key and its certificate, which signs itself without an issuer.
func issue(template *x509.Certificate, issuer *Authority) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	if issuer == nil {
		issuer = &Authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// Pair names a certificate and its key on disk, both PEM.
type Pair struct{ CertFile, KeyFile string }

func (p Pair) exists() bool {
	_, certErr := os.Stat(p.CertFile)
	_, keyErr := os.Stat(p.KeyFile)
	return certErr == nil && keyErr == nil
}

// Dir is a folder of pairs.
type Dir struct{ Path string }

// Pair names the files of a name. They need not exist.
func (d Dir) Pair(name string) Pair {
	return Pair{filepath.Join(d.Path, name+".crt"), filepath.Join(d.Path, name+".key")}
}

// Authority makes a certificate authority, or keeps the existing one.
func (d Dir) Authority(name string) (Pair, error) {
	return d.ensure(name, func() (tls.Certificate, error) {
		_, own, err := NewAuthority(name)
		return own, err
	})
}

// Certificate makes a certificate, or keeps the existing one.
func (d Dir) Certificate(name, authority string, r Request) (Pair, error) {
	return d.ensure(name, func() (tls.Certificate, error) {
		issuer, err := LoadAuthority(d.Pair(authority))
		if err != nil {
			return tls.Certificate{}, err
		}
		return issuer.Issue(r)
	})
}

func (d Dir) ensure(name string, create func() (tls.Certificate, error)) (Pair, error) {
	pair := d.Pair(name)
	if pair.exists() {
		return pair, nil
	}
	certificate, err := create()
	if err == nil {
		err = pair.write(certificate)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("making certificate %s: %w", name, err)
	}
	return pair, nil
}

// write writes the key first, so that no certificate is ever without its key.
func (p Pair) write(certificate tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.KeyFile), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(p.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o644)
}
