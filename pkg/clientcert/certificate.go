// Package clientcert makes the certificates by which the clients of EFS say through which access
// point they come, and prove which IAM identity they have. EFS looks at nothing else in them, so
// each signs itself, with a key that never leaves its node.
//
// What a certificate says is a function of its request alone: the same request gives the same
// bytes, which are those that OpenSSL would write.
package clientcert

import (
	"crypto/rsa"
	"crypto/sha1" // for an identifier only, by RFC 5280
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// KeyBits is the size of the RSA keys that EFS is known to take.
	KeyBits = 3072
	// Lifetime is from when a certificate is made until it ends.
	Lifetime = 3 * time.Hour
	// clockSkew is how far the clocks of node and server may be apart.
	clockSkew = 15 * time.Minute
	// maxCommonName is what X.509 allows, in bytes here.
	maxCommonName = 64
)

// Request is all that a certificate is made from.
type Request struct {
	CommonName  string // of the node; EFS does not look at it
	FileSystem  string
	AccessPoint string // "" for the file system itself
	// Region is that of the file system; only with Credentials.
	Region string
	// Credentials sign the certificate for IAM; nil for a client without an identity.
	Credentials *Credentials
	Now         time.Time // to the second
}

// Credentials are those of an IAM identity.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string // "" for credentials that do not expire
}

// Make gives the certificate in DER. It is valid from 15 minutes ago, and for Lifetime. An error
// says what the request lacks.
func Make(key *rsa.PrivateKey, r Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("making a client certificate: %w", err)
	}
	id := keyID(&key.PublicKey)
	extensions, err := r.extensions(id)
	if err != nil {
		return nil, fmt.Errorf("making a client certificate: %w", err)
	}
	subject, err := name(r.CommonName)
	if err != nil {
		return nil, fmt.Errorf("making a client certificate: %w", err)
	}
	template := &x509.Certificate{
		// Whoever signs for itself counts for itself.
		SerialNumber:       big.NewInt(r.Now.Unix()),
		SignatureAlgorithm: x509.SHA256WithRSA,
		RawSubject:         subject,
		NotBefore:          r.Now.Add(-clockSkew),
		NotAfter:           r.Now.Add(Lifetime),
		SubjectKeyId:       id,
		ExtraExtensions:    extensions,
	}
	// Signatures of this kind need no chance.
	der, err := x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a client certificate: %w", err)
	}
	return der, nil
}

func (r Request) check() error {
	switch {
	case r.CommonName == "":
		return errors.New("there is no common name")
	case r.FileSystem == "":
		return errors.New("there is no file system")
	case !utf8.ValidString(r.CommonName + r.FileSystem + r.AccessPoint):
		return errors.New("a name is not in UTF-8")
	case r.Now.Unix() < 0:
		return errors.New("there is no time")
	case r.Credentials == nil:
		return nil
	case r.Region == "":
		return errors.New("there is no region to sign for")
	}
	return r.Credentials.check()
}

func (c Credentials) check() error {
	switch {
	case c.AccessKeyID == "" || c.SecretAccessKey == "":
		return errors.New("the credentials are empty")
	case !utf8.ValidString(c.AccessKeyID + c.SessionToken):
		return errors.New("the credentials are not in UTF-8")
	}
	return nil
}

// keyID is the SHA-1 of the key itself, which openssl calls its hash and EFS has signed.
func keyID(key *rsa.PublicKey) []byte {
	sum := sha1.Sum(x509.MarshalPKCS1PublicKey(key))
	return sum[:]
}

// name is CN=<text> as openssl writes it: in UTF-8 also where a smaller set of characters would do.
func name(text string) ([]byte, error) {
	if len(text) > maxCommonName {
		text = strings.ToValidUTF8(text[:maxCommonName], "")
	}
	value, err := asn1.MarshalWithParams(text, "utf8")
	if err != nil {
		return nil, fmt.Errorf("common name %q: %w", text, err)
	}
	return asn1.Marshal(pkix.RDNSequence{{{
		Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: asn1.RawValue{FullBytes: value},
	}}})
}
