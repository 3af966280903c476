package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"
)

func TestCertificateIsTrustedThroughItsAuthority(t *testing.T) {
	d := Dir{t.TempDir()}
	ca, err := d.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := d.Certificate("server", "ca", Request{CommonName: "s", Organization: "o", Hosts: []string{"name.example", "10.1.2.3"}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, ca.CertFile))
	cert := parse(t, pair.CertFile)
	for _, host := range []string{"name.example", "10.1.2.3"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("verifying for %s: %v", host, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.example"}); err == nil {
		t.Error("verified for a name that was not asked for")
	}
}

func TestWhatIsThereIsKept(t *testing.T) {
	d := Dir{t.TempDir()}
	for range 2 {
		if _, err := d.Authority("ca"); err != nil {
			t.Fatal(err)
		}
	}
	first, err := d.Certificate("c", "ca", Request{CommonName: "c"})
	if err != nil {
		t.Fatal(err)
	}
	before := parse(t, first.CertFile)
	if _, err := d.Certificate("c", "ca", Request{CommonName: "c"}); err != nil {
		t.Fatal(err)
	}
	if !before.Equal(parse(t, first.CertFile)) {
		t.Error("the certificate was made again")
	}
}

func parse(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
