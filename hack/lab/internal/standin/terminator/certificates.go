package terminator

import (
	"crypto/tls"
	"fmt"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
)

// CertificateKind is the fault of a mount target's certificate, if any.
type CertificateKind string

// The certificates that a mount target can present.
const (
	GoodCertificate      CertificateKind = "ok"
	WrongNameCertificate CertificateKind = "wrong-name" // for another region
	ExpiredCertificate   CertificateKind = "expired"    // since yesterday
	UntrustedCertificate CertificateKind = "untrusted"  // from another authority
)

// CertificateKinds lists all certificates that a mount target can present.
func CertificateKinds() []CertificateKind {
	return []CertificateKind{GoodCertificate, WrongNameCertificate, ExpiredCertificate, UntrustedCertificate}
}

// Certificates holds one certificate of each kind.
type Certificates struct {
	configs map[CertificateKind]*tls.Config
}

const day = 24 * time.Hour

// NewCertificates issues all kinds for the mount targets of a region. The trusted ones are issued by
// the lab's authority.
func NewCertificates(lab pki.Pair, region string) (*Certificates, error) {
	trusted, err := pki.LoadAuthority(lab)
	if err != nil {
		return nil, fmt.Errorf("loading the authority of the mount targets' certificates: %w", err)
	}
	untrusted, _, err := pki.NewAuthority("untrusted")
	if err != nil {
		return nil, err
	}
	good, wrong := "*.efs."+region+".amazonaws.com", "*.efs.xx-nowhere-1.amazonaws.com"
	c := &Certificates{configs: map[CertificateKind]*tls.Config{}}
	for _, leaf := range []struct {
		kind     CertificateKind
		issuer   *pki.Authority
		name     string
		validFor time.Duration
	}{
		{GoodCertificate, trusted, good, 365 * day},
		{WrongNameCertificate, trusted, wrong, 365 * day},
		{ExpiredCertificate, trusted, good, -day},
		{UntrustedCertificate, untrusted, good, 365 * day},
	} {
		issued, err := leaf.issuer.Issue(pki.Request{CommonName: leaf.name, Hosts: []string{leaf.name}, ValidFor: leaf.validFor})
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
		return nil, fmt.Errorf("there is no certificate %q", kind)
	}
	return config, nil
}

func serverConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		// When a session is resumed, no certificates are exchanged, and so none would be checked.
		SessionTicketsDisabled: true,
	}
}
