package stunneltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority for tests.
type Authority struct {
	File        string // the path of its certificate in PEM, for a tunnel's CAFile
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority creates an authority whose file is removed after the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{certificate: &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}}
	issued := a.issue(t, a.certificate)
	a.File = writePEM(t, "authority.pem", "CERTIFICATE", issued.Certificate[0])
	return a
}

// Certificate issues a certificate of a server or a client for DNS names, which expires at the time until.
func (a *Authority) Certificate(t testing.TB, until time.Time, names ...string) tls.Certificate {
	t.Helper()
	return a.issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// Valid issues a server certificate that has not expired.
func (a *Authority) Valid(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	return a.Certificate(t, time.Now().Add(time.Hour), names...)
}

// ClientFiles writes a client certificate and its key in PEM and returns their paths.
func (a *Authority) ClientFiles(t testing.TB) (cert, key string) {
	t.Helper()
	issued := a.Valid(t, "client")
	der, err := x509.MarshalPKCS8PrivateKey(issued.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "client.pem", "CERTIFICATE", issued.Certificate[0]), writePEM(t, "client.key", "PRIVATE KEY", der)
}

// issue signs a certificate of a new key. The first one of an authority is its own.
func (a *Authority) issue(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.key == nil {
		a.key = key
	}
	template.NotBefore = time.Now().Add(-48 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func writePEM(t testing.TB, file, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), file)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
