// Package clientcert makes the TLS client certificates by which EFS knows a client's access point
// and IAM identity. EFS checks only its own extensions in them, so they are self-signed, with a key
// that never leaves the node.
//
// Make is deterministic: equal keys and requests give equal bytes, which are those that OpenSSL
// would write.
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

// Sizes and times of certificates.
const (
	KeyBits       = 3072             // the size of RSA keys that EFS is known to accept
	Lifetime      = 3 * time.Hour    // the time between the making of a certificate and its NotAfter
	clockSkew     = 15 * time.Minute // the largest tolerated difference between the clocks of node and server
	maxCommonName = 64               // what X.509 allows, in bytes here
)

// Request is what a certificate is made from, besides the key.
type Request struct {
	CommonName  string // of the node; EFS ignores it
	FileSystem  string
	AccessPoint string // "" for the file system itself
	Region      string // the file system's; needed with Credentials only
	// Credentials sign the IAM extension; nil for a certificate without IAM.
	Credentials *Credentials
	Now         time.Time // to the second
}

// Credentials are AWS credentials.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string // "" for credentials that do not expire
}

// Make makes a certificate in DER. It is valid from clockSkew before Request.Now until Lifetime after it.
func Make(key *rsa.PrivateKey, r Request) ([]byte, error) {
	der, err := r.sign(key)
	if err != nil {
		return nil, fmt.Errorf("making a client certificate: %w", err)
	}
	return der, nil
}

func (r Request) sign(key *rsa.PrivateKey) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	id := keyID(&key.PublicKey)
	extensions, err := r.extensions(id)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// A self-signed certificate needs a number that is unique for its key only.
		SerialNumber:       big.NewInt(r.Now.Unix()),
		SignatureAlgorithm: x509.SHA256WithRSA,
		Subject:            r.subject(),
		NotBefore:          r.Now.Add(-clockSkew),
		NotAfter:           r.Now.Add(Lifetime),
		SubjectKeyId:       id,
		ExtraExtensions:    extensions,
	}
	// PKCS #1 v1.5 signatures use no random numbers.
	return x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
}

func (r Request) check() error {
	switch {
	case r.CommonName == "":
		return errors.New("the common name is empty")
	case r.FileSystem == "":
		return errors.New("the file system is empty")
	case !utf8.ValidString(r.CommonName + r.FileSystem + r.AccessPoint):
		return errors.New("a name is not valid UTF-8")
	case r.Now.Unix() < 0:
		return errors.New("the time is before 1970")
	case r.Credentials == nil:
		return nil
	case r.Region == "":
		return errors.New("the region is empty")
	case r.Credentials.AccessKeyID == "" || r.Credentials.SecretAccessKey == "":
		return errors.New("the credentials are empty")
	case !utf8.ValidString(r.Credentials.AccessKeyID + r.Credentials.SessionToken):
		return errors.New("the credentials are not valid UTF-8")
	}
	return nil
}

// keyID is the SHA-1 of the public key, as in OpenSSL's subjectKeyIdentifier=hash. The IAM
// extension signs it.
func keyID(key *rsa.PublicKey) []byte {
	sum := sha1.Sum(x509.MarshalPKCS1PublicKey(key))
	return sum[:]
}

// subject is CN=<common name> as OpenSSL writes it: always a UTF8String.
func (r Request) subject() pkix.Name {
	text := r.CommonName
	if len(text) > maxCommonName {
		text = strings.ToValidUTF8(text[:maxCommonName], "")
	}
	return pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{
		Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(text)},
	}}}
}
