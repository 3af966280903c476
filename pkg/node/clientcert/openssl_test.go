package clientcert_test

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

// openssl runs the program. A test that needs it and does not get it fails.
func openssl(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", args...)
	cmd.Dir = folder
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("openssl %s: %v\n%s\nThis test runs the real one: install the package openssl.", args, err, &stderr)
	}
	return stdout.String()
}

// TestSameAsOpenSSL has OpenSSL make the same certificate from the same key, as AWS's mount
// helper does. Not one byte is another.
func TestSameAsOpenSSL(t *testing.T) {
	for name, r := range requests() {
		if len(r.CommonName) > 64 {
			continue // which openssl refuses
		}
		t.Run(name, func(t *testing.T) {
			want, got := byOpenSSL(t, r), made(t, r)
			if !bytes.Equal(want, got) {
				t.Errorf("got\n%s\nwant OpenSSL's\n%s", hex.Dump(got), hex.Dump(want))
			}
		})
	}
}

// byOpenSSL makes a folder of a certificate authority that signs itself.
func byOpenSSL(t *testing.T, r clientcert.Request) []byte {
	t.Helper()
	folder := t.TempDir()
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(testKey(t))})
	for file, text := range map[string]string{
		"key.pem": string(key), "index.txt": "", "serial": fmt.Sprintf("%X\n", r.Now.Unix()), "ca.conf": authority(t, r),
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const form = "060102150405Z"
	openssl(t, folder, "req", "-new", "-config", "ca.conf", "-key", "key.pem", "-out", "request.csr")
	openssl(t, folder, "ca", "-config", "ca.conf", "-batch", "-notext", "-selfsign", "-keyfile", "key.pem", "-in", "request.csr",
		"-startdate", r.Now.Add(-15*60*1e9).Format(form), "-enddate", r.Now.Add(3*60*60*1e9).Format(form), "-out", "certificate.pem")
	text, err := os.ReadFile(filepath.Join(folder, "certificate.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("openssl wrote no certificate: %s", text)
	}
	return block.Bytes
}

// authority is the configuration, with the extensions in OpenSSL's own words.
func authority(t *testing.T, r clientcert.Request) string {
	t.Helper()
	lines := []string{
		"[ca]", "default_ca = local",
		"[local]", "database = index.txt", "serial = serial", "new_certs_dir = .", "certificate = certificate.pem",
		"default_md = sha256", "policy = any", "x509_extensions = client", "unique_subject = no", "preserve = no",
		"[any]", "CN = supplied",
		"[req]", "prompt = no", "distinguished_name = name", "string_mask = utf8only",
		"[name]", "CN = " + r.CommonName,
		"[client]", "subjectKeyIdentifier = hash",
	}
	if r.AccessPoint != "" {
		lines = append(lines, "1.3.6.1.4.1.4843.7.1 = ASN1:UTF8String:"+r.AccessPoint)
	}
	if r.IAM {
		lines = append(lines, "1.3.6.1.4.1.4843.7.2 = ASN1:SEQUENCE:auth")
	}
	lines = append(lines, "1.3.6.1.4.1.4843.7.3 = ASN1:UTF8String:"+r.FileSystem)
	if c := r.Credentials; r.IAM {
		lines = append(lines, "[auth]", "accessKeyId = UTF8String:"+c.AccessKeyID,
			"signature = OCTETSTRING:"+r.Signature(hex.EncodeToString(parsed(t, made(t, r)).SubjectKeyId)),
			"sigv4DateTime = UTCTIME:"+r.Now.Format("060102150405Z"))
		if c.SessionToken != "" {
			lines = append(lines, "sessionToken = EXPLICIT:0,UTF8String:"+c.SessionToken)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestOpenSSLReads has both of OpenSSL's parsers read each certificate.
func TestOpenSSLReads(t *testing.T) {
	for name, r := range requests() {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made(t, r)})
			if err := os.WriteFile(filepath.Join(folder, "c.pem"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			openssl(t, folder, "verify", "-check_ss_sig", "-no_check_time", "-partial_chain", "-trusted", "c.pem", "c.pem")
			whole := openssl(t, folder, "x509", "-in", "c.pem", "-noout", "-text")
			for _, want := range []string{"Version: 3", "sha256WithRSAEncryption", "Public-Key: (3072 bit)", "1.3.6.1.4.1.4843.7.3"} {
				if !strings.Contains(whole, want) {
					t.Errorf("openssl x509 does not see %q:\n%s", want, whole)
				}
			}
			types := openssl(t, folder, "asn1parse", "-in", "c.pem")
			if !strings.Contains(types, "UTF8STRING") || strings.Contains(types, "PRINTABLESTRING") {
				t.Errorf("names are not in UTF-8:\n%s", types)
			}
		})
	}
}
