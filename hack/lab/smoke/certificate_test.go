//go:build smoke

package smoke

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

// clientCertificate writes an EFS client's certificate for a file system and an access point, and returns
// the files of certificate and key.
func clientCertificate(t testing.TB, fileSystemID, accessPointID string) (certFile, keyFile string) {
	t.Helper()
	certificate := mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystemID, AccessPointID: accessPointID})
	keyDER, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return certFile, keyFile
}

func write(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
