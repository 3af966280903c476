package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// listenAsAgent listens on the agent's socket of a prefix.
func listenAsAgent(t *testing.T, prefix string) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", prefix+"-agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // its server may have closed it already
	return listener
}

// serveAgent answers as an agent that is healthy and not ready.
func serveAgent(t *testing.T, prefix string) {
	t.Helper()
	handler := httpserver.Handler(httpserver.Options{
		Healthy: []httpserver.Check{{Name: "loop", Func: func() error { return nil }}},
		Ready:   []httpserver.Check{{Name: "tunnels", Func: func() error { return errors.New("not listening: fs-1") }}},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	server, listener := &http.Server{Handler: handler, ReadHeaderTimeout: testTimeout}, listenAsAgent(t, prefix)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// serveText answers each request on the agent's socket with a text.
func serveText(t *testing.T, prefix, text string) {
	t.Helper()
	listener := listenAsAgent(t, prefix)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = io.WriteString(conn, text)
			conn.Close()
		}
	}()
}

func TestProbeReportsStateOfAgent(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	serveAgent(t, at("s.conf"))
	serveText(t, at("closed"), "")
	serveText(t, at("smtp"), "220 hello\r\n")
	serveText(t, at("broken"), "HTTP/1.0 200 OK\r\nContent-Type")
	ended, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("ended") + "-agent.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ended.SetUnlinkOnClose(false) // a killed process leaves the file
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		env  map[string]string
		code int
		want []string
	}{
		"healthy":                 {[]string{"healthy", "--stunnel-conf=" + at("s.conf")}, nil, program.ExitDone, []string{"[+] loop\nok\n"}},
		"prefix from environment": {[]string{"healthy"}, map[string]string{"STUNNEL_CONF_PATH": at("s.conf")}, program.ExitDone, []string{"ok"}},
		"not ready":               {[]string{"ready", "--stunnel-conf=" + at("s.conf")}, nil, program.ExitFailed, []string{at("s.conf-agent.sock"), "/readyz", "503 Service Unavailable", "[-] tunnels: not listening: fs-1"}},
		"agent not started":       {[]string{"ready", "--stunnel-conf=" + at("other")}, nil, program.ExitFailed, []string{at("other-agent.sock"), "no such socket"}},
		"agent exited":            {[]string{"ready", "--stunnel-conf=" + at("ended")}, nil, program.ExitFailed, []string{at("ended-agent.sock"), "no process listens"}},
		"missing directory":       {[]string{"ready", "--stunnel-conf=" + at("no/directory")}, nil, program.ExitFailed, []string{at("no"), "no such file or directory"}},
		"empty answer":            {[]string{"ready", "--stunnel-conf=" + at("closed")}, nil, program.ExitFailed, []string{at("closed-agent.sock"), `"" is not HTTP`}},
		"not HTTP":                {[]string{"ready", "--stunnel-conf=" + at("smtp")}, nil, program.ExitFailed, []string{`"220 hello" is not HTTP`}},
		"malformed HTTP":          {[]string{"ready", "--stunnel-conf=" + at("broken")}, nil, program.ExitFailed, []string{"is not all of its head"}},
		"unknown check":           {[]string{"happy"}, nil, program.ExitUsage, []string{`"happy": want healthy or ready`}},
		"no check":                {nil, nil, program.ExitUsage, []string{"want healthy or ready"}},
		"invalid prefix":          {[]string{"ready", "--stunnel-conf=x"}, nil, program.ExitUsage, []string{`--stunnel-conf "x": want`}},
		"invalid timeout":         {[]string{"ready"}, map[string]string{"AGENT_PROBE_TIMEOUT": "soon"}, program.ExitUsage, []string{`AGENT_PROBE_TIMEOUT "soon": want`}},
		"too many arguments":      {[]string{"ready", "healthy"}, nil, program.ExitUsage, []string{`argument "healthy"`}},
		"help":                    {[]string{"--help"}, nil, program.ExitDone, []string{"AGENT_PROBE_TIMEOUT", "(default 4s)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"probe"}, tt.args...), func(name string) string {
				return cmp.Or(tt.env[name], map[string]string{"AGENT_PROBE_TIMEOUT": "1m"}[name])
			}, &stdout, &stderr)
			if code != tt.code || (stdout.Len() > 0) != (code == program.ExitDone) || (stderr.Len() > 0) == (code == program.ExitDone) {
				t.Errorf("got %d, %q and %q, want %d", code, &stdout, &stderr, tt.code)
			}
			for _, part := range tt.want {
				if !strings.Contains(stdout.String()+stderr.String(), part) {
					t.Errorf("got output %q and %q, want %q", &stdout, &stderr, part)
				}
			}
		})
	}
}

// TestSilentAgentTimesOut has a socket that accepts connections in its backlog, as of a hanging
// agent.
func TestSilentAgentTimesOut(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "s.conf")
	listenAsAgent(t, prefix)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"probe", "healthy", "--stunnel-conf=" + prefix, "--timeout=100ms"}, noEnv, &stdout, &stderr)
	want := "getting /healthz from the agent at " + prefix + "-agent.sock: no answer within 100ms"
	if code != program.ExitFailed || !strings.Contains(stderr.String(), want) {
		t.Errorf("got %d and %q, want %q", code, &stderr, want)
	}
}

func TestLongAnswerIsTruncated(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "s.conf")
	serveText(t, prefix, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", 3*maxResponse))
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"probe", "healthy", "--timeout=1m", "--stunnel-conf=" + prefix}, noEnv, &stdout, &stderr)
	if code != program.ExitDone || stdout.Len() == 0 || stdout.Len() > maxResponse {
		t.Errorf("got %d, %d bytes and %q", code, stdout.Len(), &stderr)
	}
}
