package mountauth

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"time"
)

// claims is the content of a certificate's extensions before it is verified.
type claims struct {
	fileSystemID  string
	accessPointID string    // "" = the whole file system
	iam           *iamProof // nil = not signed
}

// iamProof is the content of the extension with the IAM signature.
type iamProof struct {
	AccessKeyID  string    `asn1:"utf8"`
	Signature    []byte    // 64 hex digits as text
	SignedAt     time.Time `asn1:"utc"`
	SessionToken string    `asn1:"utf8,explicit,optional,tag:0"`
}

// clientInfo is the content of the extension with the client's name and version.
type clientInfo struct {
	Source  string `asn1:"utf8"`
	Version string `asn1:"utf8"`
}

const maxSource = 100

// Extensions of mount helpers' certificates. Text is what ObjectIdentifier.String gives.
const (
	subjectKeyExtension  = "2.5.29.14"
	accessPointExtension = "1.3.6.1.4.1.4843.7.1"
	iamExtension         = "1.3.6.1.4.1.4843.7.2"
	fileSystemExtension  = "1.3.6.1.4.1.4843.7.3"
	clientExtension      = "1.3.6.1.4.1.4843.7.4"
)

// readClaims requires that every extension is known and valid, and that those are present that mount
// helpers always send.
func readClaims(cert *x509.Certificate) (claims, error) {
	var c claims
	seen := map[string]bool{}
	for _, e := range cert.Extensions {
		id := e.Id.String()
		if e.Critical {
			return claims{}, Refuse(Certificate, "extension %s is critical", id)
		}
		if seen[id] {
			return claims{}, Refuse(Certificate, "extension %s occurs twice", id)
		}
		seen[id] = true
		if err := c.read(cert, e); err != nil {
			return claims{}, Refuse(Certificate, "extension %s: %v", id, err)
		}
	}
	for _, id := range []string{subjectKeyExtension, fileSystemExtension} {
		if !seen[id] {
			return claims{}, Refuse(Certificate, "extension %s is missing", id)
		}
	}
	return c, nil
}

func (c *claims) read(cert *x509.Certificate, e pkix.Extension) (err error) {
	switch e.Id.String() {
	case subjectKeyExtension:
		return checkSubjectKey(cert, e.Value)
	case accessPointExtension:
		c.accessPointID, err = decodeID(e.Value, "fsap-")
	case fileSystemExtension:
		c.fileSystemID, err = decodeID(e.Value, "fs-")
	case iamExtension:
		c.iam, err = decodeIAM(e.Value)
	case clientExtension:
		return checkClientInfo(e.Value)
	default:
		return errors.New("no client of EFS sends this extension")
	}
	return err
}

func checkSubjectKey(cert *x509.Certificate, der []byte) error {
	id, err := decode[[]byte](der, "")
	if err != nil {
		return fmt.Errorf("want an OCTET STRING: %w", err)
	}
	if !bytes.Equal(id, subjectKeyID(cert)) {
		return fmt.Errorf("is %x, want the SHA-1 of the public key %x", id, subjectKeyID(cert))
	}
	return nil
}

func decodeID(der []byte, prefix string) (string, error) {
	id, err := decode[string](der, "utf8")
	if err != nil {
		return "", fmt.Errorf("want a UTF8String: %w", err)
	}
	if !strings.HasPrefix(id, prefix) || len(id) == len(prefix) {
		return "", fmt.Errorf("%q: want an id that begins with %s", id, prefix)
	}
	return id, nil
}

func decodeIAM(der []byte) (*iamProof, error) {
	proof, err := decode[iamProof](der, "")
	if err != nil {
		return nil, fmt.Errorf("want a SEQUENCE of access key, signature, time and perhaps token: %w", err)
	}
	if _, offset := proof.SignedAt.Zone(); offset != 0 {
		return nil, fmt.Errorf("time %s is not in UTC", proof.SignedAt)
	}
	if !isHexDigest(proof.Signature) {
		return nil, fmt.Errorf("signature %q: want 64 of 0-9 and a-f as text", proof.Signature)
	}
	return &proof, nil
}

func isHexDigest(text []byte) bool {
	const digits = 64
	return len(text) == digits && len(bytes.Trim(text, "0123456789abcdef")) == 0
}

func checkClientInfo(der []byte) error {
	info, err := decode[clientInfo](der, "")
	if err != nil {
		return fmt.Errorf("want a SEQUENCE of two UTF8Strings: %w", err)
	}
	if n := len([]rune(info.Source)); n > maxSource {
		return fmt.Errorf("the source has %d characters, want at most %d", n, maxSource)
	}
	return nil
}

// decode accepts strict DER only. The library accepts any kind of string for any other, and ignores
// what follows the last member of a SEQUENCE. In DER a value has one encoding, so an input that
// differs from the value's encoding was not DER of this type.
func decode[T any](der []byte, params string) (T, error) {
	var value T
	rest, err := asn1.UnmarshalWithParams(der, &value, params)
	if err != nil {
		return value, err
	}
	if len(rest) > 0 {
		return value, fmt.Errorf("%d bytes follow the value", len(rest))
	}
	again, err := asn1.MarshalWithParams(value, params)
	if err != nil {
		return value, err
	}
	if !bytes.Equal(again, der) {
		return value, errors.New("not its DER form")
	}
	return value, nil
}
