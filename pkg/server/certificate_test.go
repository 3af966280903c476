package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func TestPairIsChecked(t *testing.T) {
	authority := stunneltest.NewAuthority(t)
	cert, key := authority.ClientFiles(t)
	_, otherKey := authority.ClientFiles(t)
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	now := time.Now()
	tests := map[string]struct {
		files   map[string]string
		clients bool
		at      time.Time
		want    string // in the error; "" for none
	}{
		"complete":               {map[string]string{certificateName: read(cert), keyName: read(key), authoritiesName: read(authority.File)}, true, now, ""},
		"without clients":        {map[string]string{certificateName: read(cert), keyName: read(key)}, false, now, ""},
		"no authority":           {map[string]string{certificateName: read(cert), keyName: read(key)}, true, now, "authorities of clients"},
		"authority without text": {map[string]string{certificateName: read(cert), keyName: read(key), authoritiesName: "x"}, true, now, "no certificate"},
		"no key":                 {map[string]string{certificateName: read(cert)}, false, now, keyName},
		"another key":            {map[string]string{certificateName: read(cert), keyName: read(otherKey)}, false, now, "does not match"},
		"expired":                {map[string]string{certificateName: read(cert), keyName: read(key)}, false, now.AddDate(1, 0, 0), "valid from"},
		"not valid yet":          {map[string]string{certificateName: read(cert), keyName: read(key)}, false, now.AddDate(-1, 0, 0), "valid from"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range tt.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := readPair(folder, tt.clients, tt.at)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestReadinessNamesTheCertificate: it is all that a server without one says.
func TestReadinessNamesTheCertificate(t *testing.T) {
	cert, key := stunneltest.NewAuthority(t).ClientFiles(t)
	folder := t.TempDir()
	if err := errors.Join(os.Rename(cert, filepath.Join(folder, certificateName)), os.Rename(key, filepath.Join(folder, keyName))); err != nil {
		t.Fatal(err)
	}
	p, err := readPair(folder, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.leaf.NotAfter = time.Now().Add(-time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what waits for a certificate stops after the first look
	s := &server{options: Options{Certificates: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, readiness: &readiness{}}
	if s.wait(ctx, s.options.Certificates, s.firstCertificate) {
		t.Fatal("there is a certificate in an empty folder")
	}
	if err := s.readiness.check(); err == nil || !strings.Contains(err.Error(), certificateName+": no such file") {
		t.Errorf("without a certificate: got %v", err)
	}
	s.readiness.expected.Store(p.leaf)
	if err := s.readiness.probe(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "valid from") {
		t.Errorf("with one that has expired: got %v", err)
	}
}
