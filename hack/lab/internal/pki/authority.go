// Package pki issues the lab's certificates from authorities of its own,
// which nobody else trusts and which live as long as the lab.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 10 * 365 * 24 * time.Hour

// Pair names a certificate and its key on disk, both PEM.
type Pair struct{ CertFile, KeyFile string }

// Dir is a folder of pairs.
type Dir struct{ Path string }

// Pair names the files of a name; it makes nothing.
func (d Dir) Pair(name string) Pair {
	return Pair{filepath.Join(d.Path, name+".crt"), filepath.Join(d.Path, name+".key")}
}

// Authority makes a certificate authority, or keeps the one that is there.
func (d Dir) Authority(name string) (Pair, error) {
	pair := d.Pair(name)
	if pair.exists() {
		return pair, nil
	}
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := d.issue(pair, template, nil); err != nil {
		return Pair{}, fmt.Errorf("making authority %s: %w", name, err)
	}
	return pair, nil
}

// Request says what a certificate is for.
type Request struct {
	CommonName   string
	Organization string   // "" = none; Kubernetes reads it as a group
	Hosts        []string // DNS names and IP addresses; a server's
}

// Certificate makes a certificate for clients, and for servers when hosts are
// given, or keeps the one that is there.
func (d Dir) Certificate(name, authority string, r Request) (Pair, error) {
	pair := d.Pair(name)
	if pair.exists() {
		return pair, nil
	}
	subject := pkix.Name{CommonName: r.CommonName}
	if r.Organization != "" {
		subject.Organization = []string{r.Organization}
	}
	template := newTemplate(subject)
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
	issuer, err := load(d.Pair(authority))
	if err != nil {
		return Pair{}, fmt.Errorf("making certificate %s: %w", name, err)
	}
	if err := d.issue(pair, template, issuer); err != nil {
		return Pair{}, fmt.Errorf("making certificate %s: %w", name, err)
	}
	return pair, nil
}

type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue writes the key first: a certificate without its key is never seen.
func (d Dir) issue(pair Pair, template *x509.Certificate, issuer *signer) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	if issuer == nil {
		issuer = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return fmt.Errorf("making the folder of keys: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	if err := writePEM(pair.KeyFile, "PRIVATE KEY", keyDER, 0o600); err != nil {
		return err
	}
	return writePEM(pair.CertFile, "CERTIFICATE", der, 0o644)
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails: crypto/rand ends the program instead
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      subject,
		// The nodes' clocks start with the machine's and may be behind it.
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(lifetime),
	}
}

func load(pair Pair) (*signer, error) {
	certDER, err := readPEM(pair.CertFile)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", pair.CertFile, err)
	}
	keyDER, err := readPEM(pair.KeyFile)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", pair.KeyFile, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading %s: want an ECDSA key, found %T", pair.KeyFile, key)
	}
	return &signer{cert, ec}, nil
}

func (p Pair) exists() bool {
	_, certErr := os.Stat(p.CertFile)
	_, keyErr := os.Stat(p.KeyFile)
	return certErr == nil && keyErr == nil
}

func readPEM(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading PEM: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("reading %s: %w", file, errors.New("no PEM block"))
	}
	return block.Bytes, nil
}

func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("writing PEM: %w", err)
	}
	return nil
}
