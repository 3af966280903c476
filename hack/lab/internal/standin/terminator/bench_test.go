package terminator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// bench is a mount target in front of servers that send their name and then echo: one for the file system
// and one for the access point fsap-1.
type bench struct {
	target *Target
	roots  *x509.CertPool
	until  context.Context // long enough for everything that should happen
}

func newBench(t testing.TB) *bench {
	t.Helper()
	authority, roots := newAuthority(t)
	certificates, err := NewCertificates(authority, "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{"": echo(t, "root\n"), "fsap-1": echo(t, "point\n"), "fsap-down": freeAddress(t)}
	b := &bench{roots: roots}
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

// newAuthority makes an authority's files, and a pool that trusts it.
func newAuthority(t testing.TB) (pki.Pair, *x509.CertPool) {
	t.Helper()
	authority, err := pki.Dir{Path: t.TempDir()}.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := os.ReadFile(authority.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return authority, roots
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

// clientCertificate has the form of a mount helper's.
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

// greeted reads the name of the server.
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
			t.Fatalf("timed out waiting for %s; status %+v", what, b.target.Status())
		case <-tick:
		}
	}
}
