package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/program"
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
	o, _, err := parseAgentOptions(args, client.Environment{Getenv: get, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
	return o, err
}

func TestAgentDefaults(t *testing.T) {
	o, err := settingsFrom(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.stunnelConf != "/tmp/stunnel.conf" || o.HTTPAddress != "127.0.0.1:20488" || o.agent.ProbeInterval != 10*time.Second ||
		o.Namespace != "efs-stunnel" || o.agent.Node != "node-1" || o.agent.RemoveStartupTaint || o.Log.Format != "text" {
		t.Errorf("got %+v", o)
	}
}

func TestAgentFlagsWin(t *testing.T) {
	o, err := settingsFrom(t, map[string]string{"NODE_NAME": "from-env", "NAMESPACE": "x", "STUNNEL_CONF_PATH": "/run/s.conf"},
		"--node-name=from-flag", "--probe-interval=5", "--remove-startup-taint")
	if err != nil {
		t.Fatal(err)
	}
	if o.agent.Node != "from-flag" || o.Namespace != "x" || o.stunnelConf != "/run/s.conf" || o.agent.ProbeInterval != 5*time.Second || !o.agent.RemoveStartupTaint {
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
		"no such file":       {map[string]string{"EFS_CA_FILE": "/no/such"}, nil, `EFS_CA_FILE "/no/such": no such file in this container; mount it into supervisor and agent`},
		"a folder of roots":  {map[string]string{"EFS_CA_FILE": "/"}, nil, `EFS_CA_FILE "/": want`},
		"relative roots":     {nil, []string{"--ca-file=ca.crt"}, `--ca-file "ca.crt": want`},
		"relative prefix":    {nil, []string{"--stunnel-conf=x"}, `--stunnel-conf "x": want`},
		"long prefix":        {nil, []string{"--stunnel-conf=/" + strings.Repeat("x", 100)}, "want at most 94 bytes"},
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
	e := client.Environment{Getenv: func(string) string { return "" }, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }}
	if code := agentRun(t.Context(), []string{"--help"}, e, &stdout, &stderr); code != program.ExitDone || !strings.Contains(stdout.String(), "--remove-startup-taint") {
		t.Errorf("help ends with %d and says %q", code, &stdout)
	}
	if code := agentRun(t.Context(), nil, e, &stdout, &stderr); code != program.ExitUsage || !strings.HasPrefix(stderr.String(), "nodeagent: ") {
		t.Errorf("without settings it ends with %d and says %q", code, &stderr)
	}
}

func TestProbeIsAnotherProgram(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := dispatch([]string{"probe", "ready"}, &stdout, &stderr); code != program.ExitUsage || !strings.Contains(stderr.String(), "want nodeagent-supervise probe healthy|ready") {
		t.Errorf("it ends with %d and says %q", code, &stderr)
	}
}

// get sends a request as kubelet's probes do.
func get(ctx context.Context, prefix, path string) (code int, report string, err error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", prefix+"-agent.sock")
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// TestAgentRunsWithoutTheAPI, and while nobody reads its log.
func TestAgentRunsWithoutTheAPI(t *testing.T) {
	folder := t.TempDir()
	roots := filepath.Join(folder, "roots.pem")
	if err := os.WriteFile(roots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var stdout, stderr bytes.Buffer
	log, lines := io.Pipe()
	prefix := filepath.Join(folder, "s.conf")
	go func() {
		ended <- agentRun(ctx, []string{
			"--node-name=node-1", "--ca-file=" + roots, "--stunnel-conf=" + prefix,
			"--master=http://127.0.0.1:1", "--http-address=127.0.0.1:0",
		}, client.Environment{Getenv: func(string) string { return "" }, ReadFile: os.ReadFile}, &stdout, lines)
		_ = lines.Close()
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		code, report, err := get(t.Context(), prefix, "/healthz")
		if err == nil && code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never became healthy: %d, %q, %v", code, report, err)
		}
		<-time.After(5 * time.Millisecond)
	}
	code, report, err := get(t.Context(), prefix, "/readyz")
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(report, "no table") {
		t.Errorf("got %d, %q, %v; want that there is no table", code, report, err)
	}
	cancel()
	if _, err := stderr.ReadFrom(log); err != nil {
		t.Error(err)
	}
	if code := <-ended; code != program.ExitDone || !strings.Contains(stderr.String(), "node agent starts") {
		t.Errorf("it ended with %d: %s", code, &stderr)
	}
}
