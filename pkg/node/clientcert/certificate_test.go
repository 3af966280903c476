package clientcert_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

// newKey is made once: it takes a second.
var newKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, clientcert.KeyBits) })

func testKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// requests are one of each kind.
func requests() map[string]clientcert.Request {
	accessPoint := known("")
	accessPoint.AccessPoint, accessPoint.IAM, accessPoint.Region = "fsap-0123456789abcdef0", false, ""
	both := known("tok/en+abc==")
	both.AccessPoint = accessPoint.AccessPoint
	neither := known("")
	neither.IAM = false
	longName := neither
	longName.CommonName = strings.Repeat("n", 63) + "éa-name-beyond-the-limit"
	return map[string]clientcert.Request{
		"access point":                      accessPoint,
		"temporary credentials":             known("tok/en+abc=="),
		"lasting credentials":               known(""),
		"access point and an IAM identity":  both,
		"neither":                           neither,
		"name that is cut inside of a rune": longName,
	}
}

func made(t *testing.T, r clientcert.Request) []byte {
	t.Helper()
	der, err := clientcert.Make(testKey(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func parsed(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestWhatGoReads(t *testing.T) {
	for name, r := range requests() {
		t.Run(name, func(t *testing.T) {
			c := parsed(t, made(t, r))
			if err := c.CheckSignature(x509.SHA256WithRSA, c.RawTBSCertificate, c.Signature); err != nil {
				t.Errorf("it does not sign itself: %v", err)
			}
			if c.Version != 3 || !bytes.Equal(c.RawIssuer, c.RawSubject) || c.IsCA || c.KeyUsage != 0 || len(c.ExtKeyUsage) > 0 {
				t.Errorf("got %+v, want a plain certificate, version 3", c)
			}
			if !c.NotBefore.Equal(r.Now.Add(-15*time.Minute)) || !c.NotAfter.Equal(r.Now.Add(3*time.Hour)) {
				t.Errorf("valid from %s to %s", c.NotBefore, c.NotAfter)
			}
			id := sha1.Sum(x509.MarshalPKCS1PublicKey(&testKey(t).PublicKey))
			if !bytes.Equal(c.SubjectKeyId, id[:]) {
				t.Errorf("got key id %x, want %x", c.SubjectKeyId, id)
			}
			for _, e := range c.Extensions {
				if e.Critical {
					t.Errorf("extension %s is critical", e.Id)
				}
			}
			if diff := cmp.Diff(wantExtensions(r, hex.EncodeToString(id[:])), extensionsOf(c)); diff != "" {
				t.Errorf("extensions (-want +got):\n%s", diff)
			}
		})
	}
}

// extensionsOf are those that are not of X.509 itself, in hexadecimal.
func extensionsOf(c *x509.Certificate) map[string]string {
	found := map[string]string{}
	for _, e := range c.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 14}) {
			found[e.Id.String()] = hex.EncodeToString(e.Value)
		}
	}
	return found
}

// wantExtensions writes DER by hand: every part here is shorter than 128 bytes.
func wantExtensions(r clientcert.Request, keyID string) map[string]string {
	part := func(tag byte, content []byte) []byte { return append([]byte{tag, byte(len(content))}, content...) }
	utf8 := func(s string) []byte { return part(0x0c, []byte(s)) }
	want := map[string]string{"1.3.6.1.4.1.4843.7.3": hex.EncodeToString(utf8(r.FileSystem))}
	if r.AccessPoint != "" {
		want["1.3.6.1.4.1.4843.7.1"] = hex.EncodeToString(utf8(r.AccessPoint))
	}
	if c := r.Credentials; r.IAM {
		content := append(utf8(c.AccessKeyID), part(0x04, []byte(r.Signature(keyID)))...)
		content = append(content, part(0x17, []byte("260102030405Z"))...)
		if c.SessionToken != "" {
			content = append(content, part(0xa0, utf8(c.SessionToken))...)
		}
		want["1.3.6.1.4.1.4843.7.2"] = hex.EncodeToString(part(0x30, content))
	}
	return want
}

func TestSameRequestSameBytes(t *testing.T) {
	for name, r := range requests() {
		if !bytes.Equal(made(t, r), made(t, r)) {
			t.Errorf("%s: the second certificate is another one", name)
		}
	}
}

func TestIncompleteRequests(t *testing.T) {
	tests := map[string]struct {
		spoil func(*clientcert.Request)
		want  string
	}{
		"no name":         {func(r *clientcert.Request) { r.CommonName = "" }, "common name"},
		"no file system":  {func(r *clientcert.Request) { r.FileSystem = "" }, "file system"},
		"no time":         {func(r *clientcert.Request) { r.Now = time.Time{} }, "time"},
		"no region":       {func(r *clientcert.Request) { r.Region = "" }, "region"},
		"no secret":       {func(r *clientcert.Request) { r.Credentials.SecretAccessKey = "" }, "credentials"},
		"no access key":   {func(r *clientcert.Request) { r.Credentials.AccessKeyID = "" }, "credentials"},
		"no text at all":  {func(r *clientcert.Request) { r.CommonName = "\xff" }, "UTF-8"},
		"token is binary": {func(r *clientcert.Request) { r.Credentials.SessionToken = "\xff" }, "UTF-8"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := known("token")
			tt.spoil(&r)
			if der, err := clientcert.Make(testKey(t), r); err == nil || der != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %x and %v, want an error of %s", der, err, tt.want)
			}
		})
	}
}
