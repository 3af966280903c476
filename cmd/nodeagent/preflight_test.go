package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/program"
)

func TestPreflightReportsInTheTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	request, err := json.Marshal(nodereport.Request{Host: dir, Proc: "/proc"})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	message := filepath.Join(dir, "termination-log")
	if code := preflight(t.Context(), []string{string(request)}, message, &stdout, &stderr); code != program.ExitDone {
		t.Fatalf("code %d: %s", code, &stderr)
	}
	text, err := os.ReadFile(message)
	if err != nil {
		t.Fatal(err)
	}
	var report nodereport.Report
	if err := json.Unmarshal(text, &report); err != nil || report.Kernel == "" || report.AWS != nil {
		t.Errorf("%s, %v", text, err)
	}
	if strings.TrimSpace(stdout.String()) != string(text) {
		t.Errorf("the log has %s", &stdout)
	}
}

func TestPreflightErrors(t *testing.T) {
	tests := map[string]struct {
		args    []string
		message string
		code    int
	}{
		"no request":          {nil, "", program.ExitUsage},
		"not a request":       {[]string{"x"}, "", program.ExitUsage},
		"no place for a file": {[]string{"{}"}, "/nowhere/x", program.ExitFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := preflight(t.Context(), tt.args, tt.message, &stdout, &stderr); code != tt.code || stderr.Len() == 0 {
				t.Errorf("code %d, %s", code, &stderr)
			}
		})
	}
}
