package clientcert

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"time"
)

// Contents are the fields of a certificate.
type Contents struct {
	FileSystem  string
	AccessPoint string // "" for the file system itself
	AccessKeyID string // "" without an IAM identity
	Made        time.Time
	NotAfter    time.Time
}

// Read reads a certificate that Make made with a key.
func Read(der []byte, key *rsa.PublicKey) (Contents, error) {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return Contents{}, fmt.Errorf("reading a client certificate: %w", err)
	}
	if !bytes.Equal(certificate.SubjectKeyId, keyID(key)) {
		return Contents{}, errors.New("reading a client certificate: it was made with another key")
	}
	c := Contents{Made: certificate.NotBefore.Add(clockSkew), NotAfter: certificate.NotAfter}
	var signed identity
	for _, field := range []struct {
		extension int
		value     any
		params    string
	}{
		{accessPointExtension, &c.AccessPoint, "utf8"},
		{iamExtension, &signed, ""},
		{fileSystemExtension, &c.FileSystem, "utf8"},
	} {
		for _, e := range certificate.Extensions {
			if !e.Id.Equal(oid(field.extension)) {
				continue
			}
			if _, err := asn1.UnmarshalWithParams(e.Value, field.value, field.params); err != nil {
				return Contents{}, fmt.Errorf("reading extension %s of a client certificate: %w", e.Id, err)
			}
		}
	}
	c.AccessKeyID = signed.AccessKeyID
	return c, nil
}
