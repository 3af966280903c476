package mountauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

const fileSystem, accessPoint = "fs-0123456789abcdef0", "fsap-0123456789abcdef0"

func verifier(now time.Time) Verifier {
	return Verifier{
		Region: "us-east-1", Key: Key{AccessKeyID: "AKIALAB", SecretAccessKey: "secret"},
		Now: func() time.Time { return now },
	}
}

func signed() *mountauthtest.IAM {
	return &mountauthtest.IAM{AccessKeyID: "AKIALAB", SecretAccessKey: "secret", SessionToken: "a/b+c==", Region: "us-east-1", At: time.Now()}
}

func parse(t *testing.T, certificate tls.Certificate) []*x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{cert}
}

func TestValidCertificatesAreAccepted(t *testing.T) {
	longTerm := signed()
	longTerm.SessionToken = ""
	yesterday := signed()
	yesterday.At = time.Now().Add(-23 * time.Hour)
	withInfo := func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{
			Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, 4}, Value: []byte("\x30\x0c\x0c\x03k8s\x0c\x053.2.0"),
		})
	}
	tests := map[string]struct {
		client mountauthtest.Client
		want   Identity
	}{
		"file system":     {mountauthtest.Client{FileSystemID: fileSystem}, Identity{true, fileSystem, "", ""}},
		"access point":    {mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: accessPoint}, Identity{true, fileSystem, accessPoint, ""}},
		"session token":   {mountauthtest.Client{FileSystemID: fileSystem, IAM: signed()}, Identity{true, fileSystem, "", "AKIALAB"}},
		"long-term key":   {mountauthtest.Client{FileSystemID: fileSystem, IAM: longTerm}, Identity{true, fileSystem, "", "AKIALAB"}},
		"old signature":   {mountauthtest.Client{FileSystemID: fileSystem, IAM: yesterday}, Identity{true, fileSystem, "", "AKIALAB"}},
		"all of it":       {mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: accessPoint, IAM: signed(), Edit: withInfo}, Identity{true, fileSystem, accessPoint, "AKIALAB"}},
		"no information":  {mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: accessPoint, IAM: signed()}, Identity{true, fileSystem, accessPoint, "AKIALAB"}},
		"long host name":  {mountauthtest.Client{FileSystemID: fileSystem, Edit: subject(mountauthtest.CommonName(t, strings.Repeat("h", 64)))}, Identity{true, fileSystem, "", ""}},
		"foreign letters": {mountauthtest.Client{FileSystemID: fileSystem, Edit: subject(mountauthtest.CommonName(t, strings.Repeat("ö", 64)))}, Identity{true, fileSystem, "", ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := verifier(time.Now()).Verify(fileSystem, parse(t, mountauthtest.Certificate(t, tt.client)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
	if got, err := verifier(time.Now()).Verify(fileSystem, nil); err != nil || got != (Identity{}) {
		t.Errorf("without a certificate: %+v, %v", got, err)
	}
}

func subject(der []byte) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.RawSubject = der }
}

func wantRefusal(t *testing.T, err error, cause Cause, text string) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Cause != cause || !strings.Contains(refusal.Reason, text) {
		t.Errorf("got %v, want a refusal for %s that mentions %q", err, cause, text)
	}
}

func TestCertificatesThatMountHelpersDoNotMakeAreRefused(t *testing.T) {
	tests := map[string]struct {
		edit func(*x509.Certificate)
		want string
	}{
		"key identifier":     {func(c *x509.Certificate) { c.SubjectKeyId = make([]byte, 20) }, "want the SHA-1 of the public key"},
		"no key identifier":  {func(c *x509.Certificate) { c.SubjectKeyId = nil }, "2.5.29.14 is missing"},
		"basic constraints":  {func(c *x509.Certificate) { c.BasicConstraintsValid = true }, "2.5.29.19 is critical"},
		"extended key usage": {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "2.5.29.37: no client of EFS sends this extension"},
		"critical":           {func(c *x509.Certificate) { c.ExtraExtensions[0].Critical = true }, "4843.7.3 is critical"},
		"printable name":     {func(c *x509.Certificate) { c.RawSubject, c.Subject = nil, pkix.Name{CommonName: "node"} }, "UTF8String"},
		"two names": {func(c *x509.Certificate) {
			c.RawSubject, c.Subject = nil, pkix.Name{CommonName: "nöde", Country: []string{"ÖÖ"}}
		}, "one common name"},
		"long name":           {subject(mountauthtest.CommonName(t, strings.Repeat("h", 65))), "65 characters"},
		"no name":             {subject(mountauthtest.CommonName(t, "")), "0 characters"},
		"signature by SHA512": {func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA512WithRSA }, "SHA512-RSA"},
		"signature by PSS":    {func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA256WithRSAPSS }, "SHA256-RSAPSS"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem, Edit: tt.edit}))
			_, err := verifier(time.Now()).Verify(fileSystem, chain)
			wantRefusal(t, err, Certificate, tt.want)
		})
	}
}

func TestOtherKeysAreRefused(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, key := range map[string]crypto.Signer{"RSA of 2048 bits, want 3072": small, "ECDSA, want RSA": elliptic} {
		chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem, Key: key}))
		_, err := verifier(time.Now()).Verify(fileSystem, chain)
		wantRefusal(t, err, Certificate, want)
	}
}

func TestCertificateMustBeSingleAndSelfSigned(t *testing.T) {
	one := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem}))
	other := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: accessPoint}))
	forged := *one[0]
	forged.Signature = other[0].Signature
	_, err := verifier(time.Now()).Verify(fileSystem, []*x509.Certificate{&forged})
	wantRefusal(t, err, Certificate, "is not self-signed")
	_, err = verifier(time.Now()).Verify(fileSystem, append(one, other...))
	wantRefusal(t, err, Certificate, "2 certificates")
	issued := *one[0]
	issued.RawIssuer = mountauthtest.CommonName(t, "another issuer")
	_, err = verifier(time.Now()).Verify(fileSystem, []*x509.Certificate{&issued})
	wantRefusal(t, err, Certificate, "is not subject")
	old := *one[0]
	old.Version = 1
	_, err = verifier(time.Now()).Verify(fileSystem, []*x509.Certificate{&old})
	wantRefusal(t, err, Certificate, "version 1")
}

func TestCertificateIsValidForItsTimeAndFileSystemOnly(t *testing.T) {
	chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem}))
	for _, now := range []time.Time{chain[0].NotBefore.Add(-time.Second), chain[0].NotAfter.Add(time.Second)} {
		_, err := verifier(now).Verify(fileSystem, chain)
		wantRefusal(t, err, Validity, now.UTC().Format(time.RFC3339))
	}
	for _, now := range []time.Time{chain[0].NotBefore, chain[0].NotAfter} {
		if _, err := verifier(now).Verify(fileSystem, chain); err != nil {
			t.Errorf("at its limit: %v", err)
		}
	}
	_, err := verifier(time.Now()).Verify("fs-0123456789abcdef1", chain)
	wantRefusal(t, err, FileSystem, "the mount target for fs-0123456789abcdef1")
}

func TestWrongSignaturesAreRefused(t *testing.T) {
	tests := map[string]struct {
		edit  func(*mountauthtest.IAM)
		cause Cause
		text  string
	}{
		"unknown key":    {func(i *mountauthtest.IAM) { i.AccessKeyID = "AKIAOTHER" }, IAMKey, "AKIAOTHER"},
		"wrong secret":   {func(i *mountauthtest.IAM) { i.SecretAccessKey = "guessed" }, IAMSignature, "AKIALAB"},
		"other region":   {func(i *mountauthtest.IAM) { i.Region = "eu-west-1" }, IAMSignature, "in us-east-1"},
		"the future":     {func(i *mountauthtest.IAM) { i.At = time.Now().Add(6 * time.Minute) }, IAMDate, "at most 5m0s ahead"},
		"the past":       {func(i *mountauthtest.IAM) { i.At = time.Now().Add(-25 * time.Hour) }, IAMDate, "24h0m0s ago"},
		"empty key name": {func(i *mountauthtest.IAM) { i.AccessKeyID = "" }, IAMKey, `""`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			iam := signed()
			tt.edit(iam)
			chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem, IAM: iam}))
			_, err := verifier(time.Now()).Verify(fileSystem, chain)
			wantRefusal(t, err, tt.cause, tt.text)
		})
	}
}

// A signature that is copied into another client's certificate, is for another file system, or has
// another token must be refused.
func TestSignatureIsValidForItsOwnCertificateOnly(t *testing.T) {
	proof := func(fileSystemID string, key []byte) pkix.Extension {
		iam := signed()
		return mountauthtest.Extension(t, 2, "", iamProof{iam.AccessKeyID, []byte(iam.Signature(fileSystemID, hexOf(key))), iam.At.UTC().Truncate(time.Second), iam.SessionToken})
	}
	own := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem}))[0].SubjectKeyId
	otherToken := proof(fileSystem, own)
	otherToken.Value = replaced(t, otherToken.Value, "a/b+c==", "a/b+d==")
	for name, tt := range map[string]struct {
		proof pkix.Extension
		ok    bool
	}{
		"its own":             {proof(fileSystem, own), true},
		"another file system": {proof("fs-0123456789abcdef1", own), false},
		"another key":         {proof(fileSystem, make([]byte, 20)), false},
		"another token":       {otherToken, false},
	} {
		t.Run(name, func(t *testing.T) {
			chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{
				FileSystemID: fileSystem, Edit: func(c *x509.Certificate) { c.ExtraExtensions = append(c.ExtraExtensions, tt.proof) },
			}))
			_, err := verifier(time.Now()).Verify(fileSystem, chain)
			if tt.ok && err != nil {
				t.Error(err)
			}
			if !tt.ok {
				wantRefusal(t, err, IAMSignature, "public key and session token")
			}
		})
	}
}
