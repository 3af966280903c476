// Package clientcert makes the TLS client certificates by which EFS knows a client's access point
// and IAM identity. EFS checks only its own extensions in them, so they are self-signed, with a key
// that never leaves the node.
//
// Make is deterministic: equal keys and requests give equal bytes, which are those that OpenSSL
// would write.
package clientcert

import (
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha1" // for an identifier only, by RFC 5280
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/url"
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

// Identity is what a client certificate proves.
type Identity struct {
	FileSystem  string `json:"fileSystem"`
	AccessPoint string `json:"accessPoint,omitempty"` // "" for the file system itself
	IAM         bool   `json:"iam,omitempty"`         // signed with the node's IAM credentials
	Region      string `json:"region,omitempty"`      // that the signature is for; only with IAM
	// Installed means that an administrator has given the agents the certificate, and that Make makes none.
	Installed bool `json:"installed,omitempty"`
}

// SameTarget reports whether two identities are for the same file system and access point, and from the same source.
func (i Identity) SameTarget(other Identity) bool {
	return i.FileSystem == other.FileSystem && i.AccessPoint == other.AccessPoint && i.Installed == other.Installed
}

// Request is what a certificate is made from, besides the key.
type Request struct {
	Identity
	CommonName  string      // of the node; EFS ignores it
	Credentials Credentials // sign the IAM extension; unused without IAM
	Now         time.Time   // to the second
}

// Credentials are AWS credentials.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string    // "" for credentials that do not expire
	Expires         time.Time // zero for never
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
	// As in OpenSSL's subjectKeyIdentifier=hash. The IAM extension signs it.
	id := sha1.Sum(x509.MarshalPKCS1PublicKey(&key.PublicKey))
	extensions, err := r.extensions(id[:])
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
		SubjectKeyId:       id[:],
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
	case !r.IAM:
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

// EFS's own extensions, by the last number of their object identifiers.
const (
	accessPointExtension = 1
	iamExtension         = 2
	fileSystemExtension  = 3
)

func oid(extension int) asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, extension}
}

// identity is the extension that proves an IAM identity. The order of its fields is that of the format.
type identity struct {
	AccessKeyID  string    `asn1:"utf8"`
	Signature    []byte    // in hexadecimal
	SignedAt     time.Time `asn1:"utc"`
	SessionToken string    `asn1:"utf8,optional,explicit,tag:0"`
}

// extensions are in the order in which EFS's mount helper has them. Its fourth one, which names
// the client program to AWS, is left out.
func (r Request) extensions(keyID []byte) ([]pkix.Extension, error) {
	type extension struct {
		number int
		value  any
		params string
	}
	var wanted []extension
	if r.AccessPoint != "" {
		wanted = append(wanted, extension{accessPointExtension, r.AccessPoint, "utf8"})
	}
	if r.IAM {
		wanted = append(wanted, extension{iamExtension, identity{
			AccessKeyID: r.Credentials.AccessKeyID, Signature: []byte(r.signature(hex.EncodeToString(keyID))),
			SignedAt: r.Now.UTC().Truncate(time.Second), SessionToken: r.Credentials.SessionToken,
		}, ""})
	}
	var encoded []pkix.Extension
	for _, e := range append(wanted, extension{fileSystemExtension, r.FileSystem, "utf8"}) {
		value, err := asn1.MarshalWithParams(e.value, e.params)
		if err != nil {
			return nil, fmt.Errorf("extension %s: %w", oid(e.number), err)
		}
		encoded = append(encoded, pkix.Extension{Id: oid(e.number), Value: value})
	}
	return encoded, nil
}

// Constants of AWS's Signature Version 4.
const (
	algorithm  = "AWS4-HMAC-SHA256"
	service    = "elasticfilesystem"
	request    = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"
	lifetime   = "86400" // of the signature in seconds, as EFS expects it
)

// signature signs EFS's action Connect for a key, in hexadecimal.
func (r Request) signature(keyID string) string {
	key := r.Credentials.signingKey(r.Now, r.Region)
	return hex.EncodeToString(mac(key, r.stringToSign(r.canonicalRequest(keyID))))
}

// canonicalRequest is the request that is signed. EFS's has no empty line between the headers and
// their names, unlike all others of Signature Version 4, so the SDK cannot sign it.
func (r Request) canonicalRequest(keyID string) string {
	return strings.Join([]string{
		"GET",
		"/",
		r.query(keyID),
		"host:" + r.FileSystem,
		"host",
		fmt.Sprintf("%x", sha256.Sum256(nil)),
	}, "\n")
}

func (r Request) query(keyID string) string {
	q := url.Values{}
	q.Set("Action", "Connect")
	q.Set("PublicKeyHash", keyID)
	q.Set("X-Amz-Algorithm", algorithm)
	q.Set("X-Amz-Credential", r.Credentials.AccessKeyID+"/"+r.scope())
	q.Set("X-Amz-Date", r.Now.UTC().Format(timeFormat))
	q.Set("X-Amz-Expires", lifetime)
	if r.Credentials.SessionToken != "" {
		q.Set("X-Amz-Security-Token", r.Credentials.SessionToken)
	}
	q.Set("X-Amz-SignedHeaders", "host")
	return q.Encode() // sorted by name, as it must be
}

// scope is the credential scope: date, region and service of the signature.
func (r Request) scope() string {
	return strings.Join([]string{r.Now.UTC().Format(dateFormat), r.Region, service, request}, "/")
}

func (r Request) stringToSign(canonical string) string {
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(canonical)))
	return strings.Join([]string{algorithm, r.Now.UTC().Format(timeFormat), r.scope(), hash}, "\n")
}

// signingKey is derived from the secret access key for one day, region and service.
func (c Credentials) signingKey(at time.Time, region string) []byte {
	key := mac([]byte("AWS4"+c.SecretAccessKey), at.UTC().Format(dateFormat))
	for _, part := range []string{region, service, request} {
		key = mac(key, part)
	}
	return key
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
