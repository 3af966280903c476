package terminator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"
)

const (
	fileSystem = "fs-0123456789abcdef0"
	serverName = fileSystem + ".efs.us-east-1.amazonaws.com"
)

func TestTheCertificateChoosesTheServer(t *testing.T) {
	type iam struct{ Key, Signature string }
	tests := map[string]struct {
		certificates []tls.Certificate
		want         string // of the server
		refusal      string
	}{
		"no certificate":              {nil, "root", ""},
		"file system":                 {clientCertificate(t, map[int]any{3: fileSystem}), "root", ""},
		"access point":                {clientCertificate(t, map[int]any{1: "fsap-1", 3: fileSystem}), "point", ""},
		"access point and IAM":        {clientCertificate(t, map[int]any{1: "fsap-1", 2: iam{"AKIA", "x"}, 3: fileSystem}), "point", ""},
		"unknown access point":        {clientCertificate(t, map[int]any{1: "fsap-2", 3: fileSystem}), "", "no access point fsap-2"},
		"access point without server": {clientCertificate(t, map[int]any{1: "fsap-down"}), "", "reaching the NFS server"},
		"extension that is no string": {clientCertificate(t, map[int]any{1: 7}), "", "not a UTF8String"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			got, err := greeted(b.mustDial(t, tt.certificates))
			if got != tt.want || (err == nil) != (tt.refusal == "") {
				t.Errorf("greeted %q, %v; want %q", got, err, tt.want)
			}
			if tt.refusal != "" {
				b.await(t, tt.refusal, func() bool { return strings.Contains(b.target.Status().LastRefusal, tt.refusal) })
			}
		})
	}
}

func TestStatusShowsConnections(t *testing.T) {
	b := newBench(t)
	conn := b.mustDial(t, clientCertificate(t, map[int]any{1: "fsap-1", 2: struct{ A string }{"x"}}))
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

func TestAHalfClosedConnectionFinishes(t *testing.T) {
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

func TestWrongCertificatesAreRefusedByClients(t *testing.T) {
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
