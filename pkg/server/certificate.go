package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Names of the files of a Secret of the type kubernetes.io/tls.
const (
	certificateName = "tls.crt"
	keyName         = "tls.key"
	authoritiesName = "ca.crt"
)

// Copies that stunnel reads. A certificate and its key are one file, so that they are always of one pair.
const (
	pairFile    = runFolder + "server.pem"
	clientsFile = runFolder + "clients.pem"
)

// pair is the server's certificate with its key, and the authorities of clients' certificates.
type pair struct {
	leaf          *x509.Certificate
	text, clients string // PEM
}

// readPair reads the files of the folder, and returns an error if stunnel could not serve with them.
func readPair(folder string, clients bool, now time.Time) (pair, error) {
	certificate, certificateErr := os.ReadFile(filepath.Join(folder, certificateName))
	key, keyErr := os.ReadFile(filepath.Join(folder, keyName))
	if err := errors.Join(certificateErr, keyErr); err != nil {
		return pair{}, fmt.Errorf("reading the server's certificate: %w", err)
	}
	parsed, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return pair{}, fmt.Errorf("reading the server's certificate: %w", err)
	}
	p := pair{leaf: parsed.Leaf, text: string(bytes.Join([][]byte{certificate, key}, []byte("\n")))}
	if err := checkTime(p.leaf, now); err != nil {
		return pair{}, err
	}
	if !clients {
		return p, nil
	}
	authorities, err := os.ReadFile(filepath.Join(folder, authoritiesName))
	if err != nil {
		return pair{}, fmt.Errorf("reading the authorities of clients: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(authorities) {
		return pair{}, fmt.Errorf("reading the authorities of clients: no certificate in the file %s", authoritiesName)
	}
	p.clients = string(authorities)
	return p, nil
}

func checkTime(leaf *x509.Certificate, now time.Time) error {
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("the server's certificate is valid from %s to %s only",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// newProbeCertificate makes the certificate with which readiness probes are clients. Its key is nowhere
// but in this process, and stunnel trusts it beside the authorities of clients.
func newProbeCertificate(now time.Time) (certificate tls.Certificate, text string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("making a certificate for probes: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "efs-stunnel probe"},
		NotBefore:    now.AddDate(-1, 0, 0), // the clock of the node may be set later
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("making a certificate for probes: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(block), nil
}
