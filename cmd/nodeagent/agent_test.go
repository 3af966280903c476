package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// settingsFrom reads options where there is a file of roots, and no pod.
func settingsFrom(t *testing.T, env map[string]string, args ...string) (agentOptions, error) {
	t.Helper()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(name string) string {
		if value, ok := env[name]; ok {
			return value
		}
		return map[string]string{"NODE_NAME": "node-1", "EFS_CA_FILE": roots}[name]
	}
	o, _, err := parseAgentOptions(args, agentEnvironment{get, func(string) ([]byte, error) { return nil, os.ErrNotExist }})
	return o, err
}

func TestAgentDefaults(t *testing.T) {
	o, err := settingsFrom(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.stunnelConf != "/tmp/stunnel.conf" || o.httpAddress != "127.0.0.1:20488" || o.probeInterval != 10*time.Second ||
		o.namespace != "efs-stunnel" || o.node != "node-1" || o.removeStartupTaint || o.logFormat != "text" {
		t.Errorf("got %+v", o)
	}
}

func TestAgentFlagsWin(t *testing.T) {
	o, err := settingsFrom(t, map[string]string{"NODE_NAME": "from-env", "NAMESPACE": "x", "STUNNEL_CONF_PATH": "/run/s.conf"},
		"--node-name=from-flag", "--probe-interval=5", "--remove-startup-taint")
	if err != nil {
		t.Fatal(err)
	}
	if o.node != "from-flag" || o.namespace != "x" || o.stunnelConf != "/run/s.conf" || o.probeInterval != 5*time.Second || !o.removeStartupTaint {
		t.Errorf("got %+v", o)
	}
}

func TestAgentBadSettings(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"no node":            {map[string]string{"NODE_NAME": ""}, nil, "--node-name or NODE_NAME is missing"},
		"bad node":           {map[string]string{"NODE_NAME": "A B"}, nil, `NODE_NAME "A B": want`},
		"bad interval":       {nil, []string{"--probe-interval=1h"}, `--probe-interval "1h": want`},
		"bad address":        {nil, []string{"--http-address=x"}, `--http-address "x": want`},
		"bad region":         {map[string]string{"AWS_REGION": "x/y"}, nil, `AWS_REGION "x/y": want`},
		"no such file":       {map[string]string{"EFS_CA_FILE": "/no/such"}, nil, `EFS_CA_FILE "/no/such": want`},
		"relative prefix":    {nil, []string{"--stunnel-conf=x"}, `--stunnel-conf "x": want`},
		"long prefix":        {nil, []string{"--stunnel-conf=/" + strings.Repeat("x", 100)}, "want at most 96 bytes"},
		"bad namespace":      {nil, []string{"--namespace=A"}, `--namespace "A": want`},
		"bad level":          {map[string]string{"LOGGING_LEVEL": "loud"}, nil, `LOGGING_LEVEL "loud": want`},
		"no such flag":       {nil, []string{"--nonsense"}, "--nonsense: there is no such flag"},
		"arguments, no flag": {nil, []string{"nonsense"}, `argument "nonsense"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := settingsFrom(t, tt.env, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestAgentHelpAndBadSettingsEnd(t *testing.T) {
	var stdout, stderr bytes.Buffer
	e := agentEnvironment{func(string) string { return "" }, func(string) ([]byte, error) { return nil, os.ErrNotExist }}
	if code := agentRun(t.Context(), []string{"--help"}, e, &stdout, &stderr); code != exitDone || !strings.Contains(stdout.String(), "--remove-startup-taint") {
		t.Errorf("help ends with %d and says %q", code, &stdout)
	}
	if code := agentRun(t.Context(), nil, e, &stdout, &stderr); code != exitUsage || !strings.HasPrefix(stderr.String(), "nodeagent: ") {
		t.Errorf("without settings it ends with %d and says %q", code, &stderr)
	}
}

func TestProbeAsksItsOwnAgent(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "s.conf")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", prefix+"-agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.Error(w, "not listening: fs-1", http.StatusServiceUnavailable)
		}
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	tests := map[string]struct {
		args []string
		code int
		says string
	}{
		"healthy":        {[]string{"healthy", "--stunnel-conf=" + prefix}, exitDone, ""},
		"not ready":      {[]string{"ready", "--stunnel-conf=" + prefix}, exitFailed, "not listening: fs-1"},
		"another agent":  {[]string{"ready", "--stunnel-conf=" + prefix + "2"}, exitFailed, "asking the agent"},
		"something else": {[]string{"happy"}, exitUsage, `"happy": want healthy or ready`},
		"nothing":        {nil, exitUsage, "want healthy or ready"},
		"a bad flag":     {[]string{"ready", "--stunnel-conf=x"}, exitUsage, `--stunnel-conf "x": want`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			code := probeRun(t.Context(), tt.args, func(string) string { return "" }, &output, &output)
			if code != tt.code || !strings.Contains(output.String(), tt.says) {
				t.Errorf("got %d and %q, want %d and %q", code, &output, tt.code, tt.says)
			}
		})
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestAgentLivesWithoutTheAPI(t *testing.T) {
	folder := t.TempDir()
	roots := filepath.Join(folder, "roots.pem")
	if err := os.WriteFile(roots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var stdout, stderr bytes.Buffer
	prefix := filepath.Join(folder, "s.conf")
	go func() {
		ended <- agentRun(ctx, []string{
			"--node-name=node-1", "--ca-file=" + roots, "--stunnel-conf=" + prefix,
			"--master=http://127.0.0.1:1", "--http-address=127.0.0.1:0",
		}, agentEnvironment{func(string) string { return "" }, os.ReadFile}, &stdout, &stderr)
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		report, err := askAgent(t.Context(), prefix, "/healthz")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never became healthy: %q, %v", report, err)
		}
		<-time.After(5 * time.Millisecond)
	}
	if report, err := askAgent(t.Context(), prefix, "/readyz"); !errors.Is(err, errNotWell) || !strings.Contains(report, "no table") {
		t.Errorf("got %q, %v; want that there is no table", report, err)
	}
	cancel()
	if code := <-ended; code != exitDone {
		t.Errorf("it ended with %d: %s", code, &stderr)
	}
}
