// Package mountauth checks the client certificates that a mount target is presented. What EFS itself
// accepts is not published, so the package accepts only what is known to work: certificates as the EFS
// mount helper makes them. It shares no code with the makers of certificates, here or in the product.
package mountauth

import (
	"crypto/x509"
	"time"
)

// Key is the pair of credentials with which clients may sign.
type Key struct{ AccessKeyID, SecretAccessKey string }

// Identity is the identity that a client's certificate requests and proves. Without a certificate it is the zero
// value: the whole file system, without an IAM identity.
type Identity struct {
	Present       bool   // a certificate was presented
	FileSystemID  string // "" without a certificate
	AccessPointID string // "" = the whole file system
	AccessKeyID   string // whose IAM signature was verified; "" = not signed
}

// Verifier checks certificates. Its methods are safe for concurrent use.
type Verifier struct {
	Region string
	Key    Key
	Now    func() time.Time
}

// Verify checks the certificates that a client has presented to a mount target of a file system. TLS
// has proven that the client has the key. The caller checks whether the requested access point exists.
// An error is a *Refusal.
func (v Verifier) Verify(fileSystemID string, chain []*x509.Certificate) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, nil
	}
	now := v.Now()
	if err := checkCertificate(chain, now); err != nil {
		return Identity{}, err
	}
	claims, err := readClaims(chain[0])
	if err != nil {
		return Identity{}, err
	}
	if claims.fileSystemID != fileSystemID {
		return Identity{}, Refuse(FileSystem, "the certificate is for file system %q, the mount target for %s", claims.fileSystemID, fileSystemID)
	}
	id := Identity{Present: true, FileSystemID: claims.fileSystemID, AccessPointID: claims.accessPointID}
	if claims.iam == nil {
		return id, nil
	}
	request := connectRequest{
		fileSystemID:  claims.fileSystemID,
		publicKeyHash: publicKeyHash(chain[0]),
		region:        v.Region,
		accessKeyID:   claims.iam.AccessKeyID,
		sessionToken:  claims.iam.SessionToken,
		signedAt:      claims.iam.SignedAt,
	}
	if err := v.checkSignature(request, claims.iam.Signature, now); err != nil {
		return Identity{}, err
	}
	id.AccessKeyID = claims.iam.AccessKeyID
	return id, nil
}
