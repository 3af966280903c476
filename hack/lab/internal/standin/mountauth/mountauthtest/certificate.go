// Package mountauthtest makes client certificates for tests, as the EFS mount helper does or with a mistake.
package mountauthtest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"math/big"
	"sync"
	"testing"
	"time"
)

// Client describes the client of a certificate.
type Client struct {
	FileSystemID  string                  // "" leaves the extension out
	AccessPointID string                  // "" = the whole file system
	IAM           *IAM                    // nil = not signed
	Edit          func(*x509.Certificate) // makes a mistake; nil makes none
	Key           crypto.Signer           // nil = an RSA key of 3072 bits, the same for all
}

// IAM is the key, region and time of a client's signature.
type IAM struct {
	AccessKeyID, SecretAccessKey, SessionToken string // SessionToken may be ""
	Region                                     string
	At                                         time.Time
}

// sharedKey is made once: its size makes it slow.
var sharedKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 3072) })

// Certificate makes a client's certificate, valid now.
func Certificate(t testing.TB, c Client) tls.Certificate {
	t.Helper()
	if c.Key == nil {
		key, err := sharedKey()
		if err != nil {
			t.Fatal(err)
		}
		c.Key = key
	}
	keyID := KeyID(c.Key.Public())
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0), RawSubject: CommonName(t, "node-1"), SubjectKeyId: keyID,
		NotBefore: now.Add(-15 * time.Minute), NotAfter: now.Add(3 * time.Hour),
	}
	if c.AccessPointID != "" {
		template.ExtraExtensions = append(template.ExtraExtensions, Extension(t, 1, "utf8", c.AccessPointID))
	}
	if c.IAM != nil {
		template.ExtraExtensions = append(template.ExtraExtensions, c.IAM.extension(t, c.FileSystemID, hex.EncodeToString(keyID)))
	}
	if c.FileSystemID != "" {
		template.ExtraExtensions = append(template.ExtraExtensions, Extension(t, 3, "utf8", c.FileSystemID))
	}
	if c.Edit != nil {
		c.Edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.Key.Public(), c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.Key}
}

// KeyID returns the subject key identifier of an RSA key. For other keys it is zeros of the same length.
func KeyID(public crypto.PublicKey) []byte {
	key, ok := public.(*rsa.PublicKey)
	if !ok {
		return make([]byte, sha1.Size)
	}
	sum := sha1.Sum(x509.MarshalPKCS1PublicKey(key))
	return sum[:]
}

// CommonName returns the DER form of a subject with a common name as UTF8String.
func CommonName(t testing.TB, name string) []byte {
	t.Helper()
	return marshal(t, "", pkix.RDNSequence{{{
		Type:  asn1.ObjectIdentifier{2, 5, 4, 3},
		Value: asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(name)},
	}}})
}

// Extension returns an extension of EFS, identified by its last number. params are those of encoding/asn1 for
// the value.
func Extension(t testing.TB, number int, params string, value any) pkix.Extension {
	t.Helper()
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, number}, Value: marshal(t, params, value)}
}

func (i IAM) extension(t testing.TB, fileSystemID, keyHash string) pkix.Extension {
	t.Helper()
	return Extension(t, 2, "", struct {
		AccessKeyID string `asn1:"utf8"`
		Signature   []byte
		At          time.Time `asn1:"utc"`
		Token       string    `asn1:"utf8,explicit,optional,tag:0"`
	}{i.AccessKeyID, []byte(i.Signature(fileSystemID, keyHash)), i.At.UTC().Truncate(time.Second), i.SessionToken})
}

func marshal(t testing.TB, params string, value any) []byte {
	t.Helper()
	der, err := asn1.MarshalWithParams(value, params)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
