package server

import (
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
