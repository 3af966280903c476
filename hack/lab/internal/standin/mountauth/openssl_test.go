package mountauth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

// opensslConfig describes a certificate as the EFS mount helper describes its
// own to OpenSSL.
var opensslConfig = template.Must(template.New("openssl.cnf").Parse(`[req]
distinguished_name = name
string_mask = utf8only
prompt = no
[name]
CN = node-1.example
[client]
subjectKeyIdentifier = hash
1.3.6.1.4.1.4843.7.1 = ASN1:UTF8String:{{.AccessPoint}}
1.3.6.1.4.1.4843.7.2 = ASN1:SEQUENCE:iam
1.3.6.1.4.1.4843.7.3 = ASN1:UTF8String:{{.FileSystem}}
1.3.6.1.4.1.4843.7.4 = ASN1:SEQUENCE:info
[iam]
key = UTF8String:{{.IAM.AccessKeyID}}
signature = OCTETSTRING:{{.Signature}}
time = UTCTIME:{{.IAM.At.Format "060102150405Z"}}
token = EXPLICIT:0,UTF8String:{{.IAM.SessionToken}}
[info]
source = UTF8String:k8s
version = UTF8String:3.2.0
`))

func openssl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func decodePEM(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s holds no PEM", file)
	}
	return block.Bytes
}

func TestACertificateByOpenSSLIsAccepted(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs openssl")
	}
	dir := t.TempDir()
	keyFile, publicFile := filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	config, certFile := filepath.Join(dir, "openssl.cnf"), filepath.Join(dir, "cert.pem")
	openssl(t, "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072", "-out", keyFile)
	openssl(t, "rsa", "-in", keyFile, "-RSAPublicKey_out", "-out", publicFile)
	public, err := x509.ParsePKCS1PublicKey(decodePEM(t, publicFile))
	if err != nil {
		t.Fatal(err)
	}
	iam := signed()
	iam.At = time.Now().UTC()
	var text bytes.Buffer
	if err := opensslConfig.Execute(&text, map[string]any{
		"FileSystem": fileSystem, "AccessPoint": accessPoint, "IAM": iam,
		"Signature": iam.Signature(fileSystem, hexOf(mountauthtest.KeyID(public))),
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	openssl(t, "req", "-new", "-x509", "-sha256", "-days", "1", "-set_serial", "0", "-config", config, "-extensions", "client", "-key", keyFile, "-out", certFile)
	cert, err := x509.ParseCertificate(decodePEM(t, certFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := verifier(time.Now().Add(time.Second)).Verify(fileSystem, []*x509.Certificate{cert})
	if want := (Identity{true, fileSystem, accessPoint, "AKIALAB"}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
