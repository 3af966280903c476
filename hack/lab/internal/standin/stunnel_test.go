package standin

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

// stunnel runs the real one with a client's certificate and returns its port.
func (l *lab) stunnel(t *testing.T, address string, certificate tls.Certificate) string {
	t.Helper()
	program := os.Getenv("STUNNEL_PATH")
	if program == "" {
		t.Skip("STUNNEL_PATH names no stunnel")
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local := free.Addr().String()
	_ = free.Close()
	keyDER, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	client, config := filepath.Join(dir, "client.pem"), filepath.Join(dir, "stunnel.conf")
	for file, content := range map[string][]byte{
		client: append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...),
		config: fmt.Appendf(nil, "foreground = yes\npid =\n[efs]\nclient = yes\naccept = %s\nconnect = %s:%s\ncert = %s\nCAfile = %s\nverifyChain = yes\n"+
			"checkHost = %s.efs.us-east-1.amazonaws.com\nTIMEOUTclose = 0\n", local, address, nfsPort, client, CAFile(l.Lab), shared),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, config)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // killed with the test's context
	return local
}

// dialLocal waits until stunnel listens.
func dialLocal(t *testing.T, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	await(t, "stunnel", func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// On a node, stunnel is between the kernel and the stand-in, and must pass on a denial.
func TestSignaturesAndDenialsPassThroughStunnel(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	if err := l.client.UpdateFileSystem(t.Context(), shared, inventory.FileSystemChange{RequireIAM: new(true)}); err != nil {
		t.Fatal(err)
	}
	signed := l.stunnel(t, "10.90.1.200", mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: shared, IAM: l.signed()}))
	unsigned := l.stunnel(t, "10.90.1.200", mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: shared}))
	if line, err := bufio.NewReader(dialLocal(t, signed)).ReadString('\n'); err != nil || !strings.HasPrefix(line, shared) {
		t.Errorf("signed: greeted by %q, %v", line, err)
	}
	for range 3 { // each connection is answered
		l.wantDenial(t, dialLocal(t, unsigned))
	}
}
