package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/program"
)

func TestSettings(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"help":             {[]string{"--help"}, program.ExitDone, "--shared-file-system"},
		"version":          {[]string{"version"}, program.ExitDone, "fips140="},
		"unknown flag":     {[]string{"--export"}, program.ExitUsage, "no such flag"},
		"relative folder":  {[]string{"--data=data"}, program.ExitUsage, `--data "data": want an absolute path`},
		"quote in folder":  {[]string{`--data=/a";b`}, program.ExitUsage, "want an absolute path"},
		"parent in folder": {[]string{"--certificate-directory=/a/../b"}, program.ExitUsage, "want an absolute path"},
		"bad address":      {[]string{"--listen=2049"}, program.ExitUsage, "want host:port"},
		"short grace":      {[]string{"--grace-period=1s"}, program.ExitUsage, "from 10s to 10m"},
		"not a disk":       {[]string{"--data=/tmp/efs-stunnel-no-disk"}, program.ExitFailed, "root of a mounted file system"},
		"quotas of others": {[]string{"--quotas", "--shared-file-system"}, program.ExitUsage, "exclude each other"},
		"ready, of none":   {[]string{"ready", "--http-address=127.0.0.1:1"}, program.ExitFailed, "connection refused"},
		"launch":           {[]string{"launch"}, program.ExitFailed, "want launch and the command"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tt.args, func(string) string { return "" }, &stdout, &stderr)
			if out := stdout.String() + stderr.String(); code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("got %d and %q, want %d and %q", code, out, tt.code, tt.want)
			}
		})
	}
}

// TestQuotasAreSaid for the status of the pod, whatever is said: the server is to start.
func TestQuotasAreSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	var stderr bytes.Buffer
	if got := sayQuotas("/proc", path, &stderr); got != program.ExitDone {
		t.Errorf("got %d, %s", got, &stderr)
	}
	if said, err := os.ReadFile(path); string(said) != "the file system is not xfs" {
		t.Errorf("got %q, %v", said, err)
	}
	if got := sayQuotas("/proc", filepath.Dir(path), &stderr); got != program.ExitFailed {
		t.Errorf("got %d of a message that cannot be written", got)
	}
}

// TestReadyPrintsWhyTheServerIsNot: the kubelet records it.
func TestReadyPrintsWhyTheServerIsNot(t *testing.T) {
	for code, want := range map[int]int{http.StatusOK: program.ExitDone, http.StatusServiceUnavailable: program.ExitFailed} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, r.URL.Path+" is full")
		}))
		defer server.Close()
		var stdout, stderr bytes.Buffer
		address := strings.TrimPrefix(server.URL, "http://")
		if got := run(t.Context(), []string{"ready", "--http-address=" + address}, func(string) string { return "" }, &stdout, &stderr); got != want || stdout.String() != "/readyz is full" {
			t.Errorf("status %d: got %d, %q and %q", code, got, &stdout, &stderr)
		}
	}
}
