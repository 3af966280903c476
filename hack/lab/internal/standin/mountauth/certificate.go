package mountauth

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"time"
)

const (
	x509Version3  = 3
	keyBits       = 3072
	maxCommonName = 64
)

// checkCertificate requires one certificate that is valid now, self-signed, and has the form of mount
// helpers' certificates.
func checkCertificate(chain []*x509.Certificate, now time.Time) error {
	if len(chain) != 1 {
		return Refuse(Certificate, "%d certificates were sent, want one that is self-signed", len(chain))
	}
	cert := chain[0]
	if cert.Version != x509Version3 {
		return Refuse(Certificate, "X.509 version %d, want 3", cert.Version)
	}
	if err := checkKey(cert); err != nil {
		return err
	}
	if err := checkNames(cert); err != nil {
		return err
	}
	if err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
		return Refuse(Certificate, "it is not self-signed: %v", err)
	}
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return Refuse(Validity, "valid from %s to %s, now it is %s",
			cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

func checkKey(cert *x509.Certificate) error {
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return Refuse(Certificate, "the key is %s, want RSA of %d bits", cert.PublicKeyAlgorithm, keyBits)
	}
	if key.N.BitLen() != keyBits {
		return Refuse(Certificate, "the key is RSA of %d bits, want %d", key.N.BitLen(), keyBits)
	}
	if cert.SignatureAlgorithm != x509.SHA256WithRSA {
		return Refuse(Certificate, "signed by %s, want %s", cert.SignatureAlgorithm, x509.SHA256WithRSA)
	}
	return nil
}

// attributeSET is one part of a name. encoding/asn1 decodes a SET into slices whose type's name ends in
// SET.
type attributeSET []struct {
	Type  asn1.ObjectIdentifier
	Value string `asn1:"utf8"`
}

// checkNames requires that issuer and subject are the same common name and nothing else.
func checkNames(cert *x509.Certificate) error {
	if !bytes.Equal(cert.RawIssuer, cert.RawSubject) {
		return Refuse(Certificate, "issuer %q is not subject %q", cert.Issuer, cert.Subject)
	}
	subject, err := decode[[]attributeSET](cert.RawSubject, "")
	if err != nil {
		return Refuse(Certificate, "subject %q, want one common name as UTF8String: %v", cert.Subject, err)
	}
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	if len(subject) != 1 || len(subject[0]) != 1 || !subject[0][0].Type.Equal(commonName) {
		return Refuse(Certificate, "subject %q, want one common name", cert.Subject)
	}
	if n := len([]rune(subject[0][0].Value)); n < 1 || n > maxCommonName {
		return Refuse(Certificate, "the common name has %d characters, want 1 to %d", n, maxCommonName)
	}
	return nil
}

// publicKeyHash returns the hash of the key in signatures: the SHA-1 of the PKCS #1 form of the public key,
// which is also the subject key identifier.
func publicKeyHash(cert *x509.Certificate) string {
	return hex.EncodeToString(subjectKeyID(cert))
}

func subjectKeyID(cert *x509.Certificate) []byte {
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil // refused before
	}
	sum := sha1.Sum(x509.MarshalPKCS1PublicKey(key))
	return sum[:]
}
