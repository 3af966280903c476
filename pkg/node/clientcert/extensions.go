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
	if r.Credentials != nil {
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
