// Package mountauth checks the certificates with which clients introduce
// themselves to a mount target. What EFS itself accepts is not published, so it
// accepts only what is known to work: certificates as the EFS mount helper makes
// them. It shares no code with what makes them, here or in the product.
package mountauth

import (
	"crypto/x509"
	"time"
)

// Key is the pair of credentials with which clients may sign.
type Key struct{ AccessKeyID, SecretAccessKey string }

// Identity is what a client's certificate asks for and proves. Without a
// certificate it is the zero value: the whole file system, as nobody.
type Identity struct {
	Present       bool   // a certificate was shown
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

// Verify checks the certificates that a client of a file system's mount target
// has shown. TLS has proven that the client has the key; the rest is checked
// here. Whether what it asks for exists is for the caller to find out. An error
// is a *Refusal.
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
		return Identity{}, Refuse(FileSystem, "the certificate is for file system %q, the mount target of %s", claims.fileSystemID, fileSystemID)
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
