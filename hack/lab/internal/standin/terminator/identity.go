package terminator

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
)

// Identity is what a client's certificate asks for. Without a certificate it
// is the zero value: the whole file system, no questions asked.
type Identity struct {
	Present       bool   // a certificate was shown
	AccessPointID string // "" = the whole file system
	FileSystemID  string // "" = not said
	IAM           bool   // carries an IAM signature
}

// The last numbers of the extensions of mount helpers' certificates, below
// 1.3.6.1.4.1.4843.7.
const (
	accessPointExtension = 1
	iamExtension         = 2
	fileSystemExtension  = 3
)

func efsExtension(last int) asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, last}
}

// identify reads the extensions. The certificate signs itself, so there is
// nothing to verify; TLS has proven that the client has its key.
func identify(chain []*x509.Certificate) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, nil
	}
	id := Identity{Present: true}
	for _, e := range chain[0].Extensions {
		var err error
		switch {
		case e.Id.Equal(efsExtension(accessPointExtension)):
			id.AccessPointID, err = utf8String(e.Value)
		case e.Id.Equal(efsExtension(fileSystemExtension)):
			id.FileSystemID, err = utf8String(e.Value)
		case e.Id.Equal(efsExtension(iamExtension)):
			id.IAM = true
		}
		if err != nil {
			return Identity{}, fmt.Errorf("extension %s of the client's certificate: %w", e.Id, err)
		}
	}
	return id, nil
}

func utf8String(der []byte) (string, error) {
	var text string
	rest, err := asn1.UnmarshalWithParams(der, &text, "utf8")
	if err != nil {
		return "", fmt.Errorf("not a UTF8String: %w", err)
	}
	if len(rest) > 0 {
		return "", errors.New("bytes follow the UTF8String")
	}
	return text, nil
}
