package terminator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

const (
	fileSystem = "fs-0123456789abcdef0"
	serverName = fileSystem + ".efs.us-east-1.amazonaws.com"
)

func TestCertificateSelectsTheServer(t *testing.T) {
	tests := map[string]struct {
		certificates []tls.Certificate
		want         string // of the server
	}{
		"no certificate":       {nil, "root"},
		"file system":          {clientCertificate(t, mountauthtest.Client{FileSystemID: fileSystem}), "root"},
		"access point":         {clientCertificate(t, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: "fsap-1"}), "point"},
		"access point and IAM": {clientCertificate(t, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: "fsap-1", IAM: signed("secret")}), "point"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if got, err := greeted(b.mustDial(t, tt.certificates)); got != tt.want || err != nil {
				t.Errorf("greeted %q, %v; want %q", got, err, tt.want)
			}
			if s := b.target.Status(); s.Refused != 0 {
				t.Errorf("status %+v, want nothing refused", s)
			}
		})
	}
}

func signed(secret string) *mountauthtest.IAM {
	return &mountauthtest.IAM{AccessKeyID: "AKIALAB", SecretAccessKey: secret, Region: "us-east-1", At: time.Now()}
}

func TestRefusedClientIsDeniedCountedAndDisconnected(t *testing.T) {
	tests := map[string]struct {
		client mountauthtest.Client
		cause  mountauth.Cause
		text   string
	}{
		"unknown access point": {mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: "fsap-2"}, mountauth.AccessPoint, "no access point fsap-2"},
		"other file system":    {mountauthtest.Client{FileSystemID: "fs-1"}, mountauth.FileSystem, "fs-1"},
		"wrong secret":         {mountauthtest.Client{FileSystemID: fileSystem, IAM: signed("guessed")}, mountauth.IAMSignature, "AKIALAB"},
		"not as helpers do": {
			mountauthtest.Client{FileSystemID: fileSystem, Edit: func(c *x509.Certificate) { c.SubjectKeyId = nil }},
			mountauth.Certificate, "is missing",
		},
		"expired": {
			mountauthtest.Client{FileSystemID: fileSystem, Edit: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
			mountauth.Validity, "valid from",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			conn := b.mustDial(t, clientCertificate(t, tt.client))
			wantDenial(t, conn)
			s := b.target.Status()
			if s.Refused != 1 || s.Refusals[tt.cause] != 1 || !strings.Contains(s.LastRefusal, tt.text) {
				t.Errorf("status %+v, want one refusal for %s that mentions %q", s, tt.cause, tt.text)
			}
			_ = conn.Close()
			b.await(t, "the end of the connection", func() bool { return b.target.Status().Open == 0 })
		})
	}
}

// wantDenial calls a server's NULL procedure and wants "access denied" and the end of the connection.
func wantDenial(t *testing.T, conn *tls.Conn) {
	t.Helper()
	const call = "\x80\x00\x00\x28xid!\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01\x86\xa3\x00\x00\x00\x04\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, call); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	const want = "\x80\x00\x00\x14xid!\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x05"
	if err != nil || string(answer) != want {
		t.Errorf("answer %x, %v; want a denial for weak authentication, %x", answer, err, want)
	}
}

func TestRefusedClientWithoutRPCIsDisconnected(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"GET / HTTP/1.0\r\n\r\n", "\x80\x00\x00\x04xid!type", "\x80\x00\x00\x28xid!\x00\x00\x00\x01"} {
		conn := b.mustDial(t, clientCertificate(t, mountauthtest.Client{FileSystemID: "fs-1"}))
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("answer %x to %q", answer, text)
		}
	}
}

func TestServerThatIsDownIsNotTheClientsFault(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, clientCertificate(t, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: "fsap-down"}))
	if _, err := greeted(conn); err == nil {
		t.Error("greeted by a server that is down")
	}
	s := b.target.Status()
	if s.Refused != 1 || len(s.Refusals) != 0 || !strings.Contains(s.LastRefusal, "connecting to the NFS server") {
		t.Errorf("status %+v, want a failure that is no client's fault", s)
	}
}

func TestStatusShowsConnections(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, clientCertificate(t, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: "fsap-1", IAM: signed("secret")}))
	if _, err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	got := b.target.Status()
	if got.Open != 1 || got.Total != 1 || len(got.Connections) != 1 {
		t.Fatalf("got %+v", got)
	}
	if c := got.Connections[0]; c.AccessPoint != "fsap-1" || !c.IAM || !c.Certificate || !c.Established {
		t.Errorf("got %+v", c)
	}
	_ = conn.Close()
	b.await(t, "the end of the connection", func() bool { return b.target.Status().Open == 0 })
}

func TestHalfClosedConnectionIsReadToItsEnd(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, nil)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	go func() {
		_, _ = io.WriteString(conn, big)
		_ = conn.CloseWrite()
	}()
	all, err := io.ReadAll(conn)
	if err != nil || string(all) != "root\n"+big+"end" {
		t.Errorf("%d bytes, %v; want %d with the end after the half-close", len(all), err, len(big)+8)
	}
}

func TestClientsRefuseInvalidCertificates(t *testing.T) {
	b := newBench(t)
	tests := map[CertificateKind]func(error) bool{
		GoodCertificate:      func(err error) bool { return err == nil },
		WrongNameCertificate: is[x509.HostnameError],
		ExpiredCertificate: func(err error) bool {
			var invalid x509.CertificateInvalidError
			return errors.As(err, &invalid) && invalid.Reason == x509.Expired
		},
		UntrustedCertificate: is[x509.UnknownAuthorityError],
	}
	for kind, right := range tests {
		t.Run(string(kind), func(t *testing.T) {
			if err := b.target.SetCertificate(kind); err != nil {
				t.Fatal(err)
			}
			conn, err := b.dial(b.until, nil)
			if !right(err) {
				t.Errorf("got %v", err)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
	if err := b.target.SetCertificate("odd"); err == nil || !strings.Contains(err.Error(), "wrong-name") {
		t.Errorf("got %v, want what is allowed", err)
	}
}

func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
