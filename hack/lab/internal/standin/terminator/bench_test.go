package terminator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// bench is a mount target in front of servers that say who they are and then
// echo: one for the file system and one for the access point fsap-1.
type bench struct {
	target *Target
	roots  *x509.CertPool
	until  context.Context // long enough for everything that should happen
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir := t.TempDir()
	authority, certFile, keyFile := newAuthorityFiles(t, dir)
	certificates, err := NewCertificates(certFile, keyFile, "us-east-1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{"": echo(t, "root\n"), "fsap-1": echo(t, "point\n"), "fsap-down": freeAddress(t)}
	b := &bench{roots: x509.NewCertPool()}
	b.roots.AddCert(authority)
	b.target = &Target{
		ID: "fsmt-1", FileSystemID: fileSystem, Address: freeAddress(t), Certificates: certificates, Log: quiet(),
		Verifier: mountauth.Verifier{Region: "us-east-1", Key: mountauth.Key{AccessKeyID: "AKIALAB", SecretAccessKey: "secret"}, Now: time.Now},
		Route: func(_ string, id mountauth.Identity) (string, error) {
			address, ok := servers[id.AccessPointID]
			if !ok {
				return "", mountauth.Refuse(mountauth.AccessPoint, "no access point %s", id.AccessPointID)
			}
			return address, nil
		},
	}
	if err := b.target.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.target.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	b.until = ctx
	return b
}

func newAuthorityFiles(t testing.TB, dir string) (cert *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return cert, certFile, keyFile
}

func echo(t testing.TB, greeting string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, greeting)
				_, _ = io.Copy(conn, conn)
				_, _ = io.WriteString(conn, "end") // after the client's half-close
			}()
		}
	}()
	return l.Addr().String()
}

// clientCertificate is made as mount helpers make theirs.
func clientCertificate(t testing.TB, c mountauthtest.Client) []tls.Certificate {
	t.Helper()
	return []tls.Certificate{mountauthtest.Certificate(t, c)}
}

func (b *bench) dial(ctx context.Context, certificates []tls.Certificate) (*tls.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.target.Address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := b.until.Deadline(); ok {
		_ = raw.SetDeadline(deadline)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: b.roots, ServerName: serverName, Certificates: certificates, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func (b *bench) mustDial(t testing.TB, certificates []tls.Certificate) *tls.Conn {
	t.Helper()
	conn, err := b.dial(b.until, certificates)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// greeted reads who answers.
func greeted(conn net.Conn) (string, error) {
	text := make([]byte, len("point\n"))
	n, err := io.ReadAtLeast(conn, text, len("root\n"))
	return strings.TrimSpace(string(text[:n])), err
}

func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(text))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != text {
		t.Fatalf("answer %q, %v; want %q", answer, err, text)
	}
}

func (b *bench) mode(t *testing.T, mode Mode) {
	t.Helper()
	if err := b.target.SetMode(t.Context(), mode); err != nil {
		t.Fatal(err)
	}
}

// await polls until the condition holds.
func (b *bench) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for tick := time.Tick(2 * time.Millisecond); !condition(); {
		select {
		case <-b.until.Done():
			t.Fatalf("never came: %s; status %+v", what, b.target.Status())
		case <-tick:
		}
	}
}
