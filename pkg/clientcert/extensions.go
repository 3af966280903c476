package clientcert

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"time"
)

// EFS's own extensions, by the last number of their object identifiers.
const (
	accessPointExtension = 1
	iamExtension         = 2
	fileSystemExtension  = 3
)

// oid is the object identifier of one of EFS's extensions.
func oid(extension int) asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, extension}
}

// identity is the extension that proves an IAM identity. The order of its fields is that of the
// format.
type identity struct {
	AccessKeyID  string    `asn1:"utf8"`
	Signature    []byte    // in hexadecimal
	SignedAt     time.Time `asn1:"utc"`
	SessionToken string    `asn1:"utf8,optional,explicit,tag:0"`
}

// extensions are in the order in which EFS's mount helper has them. Its fourth one, which names
// the client program to AWS, is left out.
func (r Request) extensions(keyID []byte) ([]pkix.Extension, error) {
	var all []pkix.Extension
	add := func(extension int, value any, params string) error {
		encoded, err := asn1.MarshalWithParams(value, params)
		if err != nil {
			return fmt.Errorf("extension %s: %w", oid(extension), err)
		}
		all = append(all, pkix.Extension{Id: oid(extension), Value: encoded})
		return nil
	}
	if r.AccessPoint != "" {
		if err := add(accessPointExtension, r.AccessPoint, "utf8"); err != nil {
			return nil, err
		}
	}
	if r.Credentials != nil {
		if err := add(iamExtension, r.identity(keyID), ""); err != nil {
			return nil, err
		}
	}
	if err := add(fileSystemExtension, r.FileSystem, "utf8"); err != nil {
		return nil, err
	}
	return all, nil
}

func (r Request) identity(keyID []byte) identity {
	return identity{
		AccessKeyID: r.Credentials.AccessKeyID, Signature: []byte(r.signature(hex.EncodeToString(keyID))),
		SignedAt: r.Now.UTC().Truncate(time.Second), SessionToken: r.Credentials.SessionToken,
	}
}
