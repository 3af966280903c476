package terminator

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// CertificateKind is what is right or wrong with a mount target's certificate.
type CertificateKind string

// The certificates that a mount target can show.
const (
	GoodCertificate      CertificateKind = "ok"
	WrongNameCertificate CertificateKind = "wrong-name" // for another region
	ExpiredCertificate   CertificateKind = "expired"    // since yesterday
	UntrustedCertificate CertificateKind = "untrusted"  // from another authority
)

// CertificateKinds lists all certificates that a mount target can show.
func CertificateKinds() []CertificateKind {
	return []CertificateKind{GoodCertificate, WrongNameCertificate, ExpiredCertificate, UntrustedCertificate}
}

// Certificates holds one certificate of each kind.
type Certificates struct {
	configs map[CertificateKind]*tls.Config
}

const day = 24 * time.Hour

// NewCertificates issues all kinds from the lab's authority, which file names
// in PEM form hold, for the mount targets of a region.
func NewCertificates(caCertFile, caKeyFile, region string, now time.Time) (*Certificates, error) {
	trusted, err := tls.LoadX509KeyPair(caCertFile, caKeyFile)
	if err != nil {
		return nil, fmt.Errorf("loading the authority of the mount targets' certificates: %w", err)
	}
	issuer, err := newAuthority(trusted)
	if err != nil {
		return nil, err
	}
	stranger, err := strangeAuthority(now)
	if err != nil {
		return nil, err
	}
	good, wrong := "*.efs."+region+".amazonaws.com", "*.efs.xx-nowhere-1.amazonaws.com"
	c := &Certificates{configs: map[CertificateKind]*tls.Config{}}
	for _, leaf := range []struct {
		kind   CertificateKind
		issuer *authority
		name   string
		until  time.Time
	}{
		{GoodCertificate, issuer, good, now.Add(365 * day)},
		{WrongNameCertificate, issuer, wrong, now.Add(365 * day)},
		{ExpiredCertificate, issuer, good, now.Add(-day)},
		{UntrustedCertificate, stranger, good, now.Add(365 * day)},
	} {
		issued, err := leaf.issuer.issue(leaf.name, now.Add(-30*day), leaf.until)
		if err != nil {
			return nil, fmt.Errorf("issuing the %s certificate: %w", leaf.kind, err)
		}
		c.configs[leaf.kind] = serverConfig(issued)
	}
	return c, nil
}

func (c *Certificates) serverConfig(kind CertificateKind) (*tls.Config, error) {
	config, ok := c.configs[kind]
	if !ok {
		return nil, fmt.Errorf("certificate %q: want one of %s: %w", kind, join(CertificateKinds()), ErrInvalid)
	}
	return config, nil
}

func serverConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		// A resumed session would skip the certificate that it was opened with.
		SessionTicketsDisabled: true,
	}
}

type authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
}

func newAuthority(pair tls.Certificate) (*authority, error) {
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the mount targets' certificates: %w", err)
	}
	return &authority{cert, pair.PrivateKey}, nil
}

// strangeAuthority is one that nobody has heard of.
func strangeAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	cert := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "an authority that nobody trusts"},
		NotBefore: now.Add(-day), NotAfter: now.Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return &authority{cert, key}, nil
}

func (a *authority) issue(name string, from, until time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func serial() *big.Int {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the program instead
	return new(big.Int).SetBytes(random)
}
