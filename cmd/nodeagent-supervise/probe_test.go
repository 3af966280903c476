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

	"gnuthought.com/efs-stunnel/pkg/httpserver"
)

// socketOf listens where the agent does whose files begin with the prefix.
func socketOf(t *testing.T, prefix string) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", prefix+"-agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // it may be closed by its server already
	return listener
}

// serveAgent answers as the agent does, which is alive but not ready.
func serveAgent(t *testing.T, prefix string) {
	t.Helper()
	handler := httpserver.Handler(httpserver.Options{
		Healthy: []httpserver.Check{{Name: "loop", Func: func() error { return nil }}},
		Ready:   []httpserver.Check{{Name: "tunnels", Func: func() error { return errors.New("not listening: fs-1") }}},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	server, listener := &http.Server{Handler: handler, ReadHeaderTimeout: patience}, socketOf(t, prefix)
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

// speak has somebody else listen there, who reads a request and says something of his own.
func speak(t *testing.T, prefix, text string) {
	t.Helper()
	listener := socketOf(t, prefix)
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

func TestProbeAsksItsOwnAgent(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	serveAgent(t, at("s.conf"))
	speak(t, at("closed"), "")
	speak(t, at("stranger"), "220 hello\r\n")
	speak(t, at("broken"), "HTTP/1.0 200 OK\r\nContent-Type\r\n\r\n")
	ended, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("ended") + "-agent.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ended.SetUnlinkOnClose(false) // as a process that is killed leaves it
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		env  map[string]string
		code int
		says []string
	}{
		"healthy":        {[]string{"healthy", "--stunnel-conf=" + at("s.conf")}, nil, exitDone, []string{"[+] loop\nok\n"}},
		"by a variable":  {[]string{"healthy"}, map[string]string{"STUNNEL_CONF_PATH": at("s.conf")}, exitDone, []string{"ok"}},
		"not ready":      {[]string{"ready", "--stunnel-conf=" + at("s.conf")}, nil, exitFailed, []string{at("s.conf-agent.sock"), "/readyz", "503 Service Unavailable", "[-] tunnels: not listening: fs-1"}},
		"not yet there":  {[]string{"ready", "--stunnel-conf=" + at("other")}, nil, exitFailed, []string{at("other-agent.sock"), "no such socket"}},
		"ended":          {[]string{"ready", "--stunnel-conf=" + at("ended")}, nil, exitFailed, []string{at("ended-agent.sock"), "nobody listens"}},
		"no folder":      {[]string{"ready", "--stunnel-conf=" + at("no/folder")}, nil, exitFailed, []string{at("no"), "no such file or directory"}},
		"no answer":      {[]string{"ready", "--stunnel-conf=" + at("closed")}, nil, exitFailed, []string{at("closed-agent.sock"), "EOF"}},
		"not HTTP":       {[]string{"ready", "--stunnel-conf=" + at("stranger")}, nil, exitFailed, []string{`"220 hello", which is no HTTP`}},
		"bad HTTP":       {[]string{"ready", "--stunnel-conf=" + at("broken")}, nil, exitFailed, []string{"malformed"}},
		"something else": {[]string{"happy"}, nil, exitUsage, []string{`"happy": want healthy or ready`}},
		"nothing":        {nil, nil, exitUsage, []string{"want healthy or ready"}},
		"a bad prefix":   {[]string{"ready", "--stunnel-conf=x"}, nil, exitUsage, []string{`--stunnel-conf "x": want`}},
		"a bad time":     {[]string{"ready"}, map[string]string{"AGENT_PROBE_TIMEOUT": "soon"}, exitUsage, []string{`AGENT_PROBE_TIMEOUT "soon": want`}},
		"too many words": {[]string{"ready", "healthy"}, nil, exitUsage, []string{`argument "healthy"`}},
		"help":           {[]string{"--help"}, nil, exitDone, []string{"AGENT_PROBE_TIMEOUT", "(default 4s)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"probe"}, tt.args...), func(name string) string {
				return cmp.Or(tt.env[name], map[string]string{"AGENT_PROBE_TIMEOUT": "1m"}[name])
			}, &stdout, &stderr)
			if code != tt.code || (stdout.Len() > 0) != (code == exitDone) || (stderr.Len() > 0) == (code == exitDone) {
				t.Errorf("got %d, %q and %q, want %d", code, &stdout, &stderr, tt.code)
			}
			for _, part := range tt.says {
				if !strings.Contains(stdout.String()+stderr.String(), part) {
					t.Errorf("it says %q and %q, want %q", &stdout, &stderr, part)
				}
			}
		})
	}
}

// TestSilentAgentIsTold: an agent that hangs accepts connections all the same.
func TestSilentAgentIsTold(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "s.conf")
	socketOf(t, prefix)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"probe", "healthy", "--stunnel-conf=" + prefix, "--timeout=100ms"}, none, &stdout, &stderr)
	want := "asking the agent at " + prefix + "-agent.sock for /healthz: no answer within 100ms"
	if code != exitFailed || !strings.Contains(stderr.String(), want) {
		t.Errorf("got %d and %q, want %q", code, &stderr, want)
	}
}

func TestLongAnswerIsCut(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "s.conf")
	speak(t, prefix, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", 3*maxAnswer))
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"probe", "healthy", "--timeout=1m", "--stunnel-conf=" + prefix}, none, &stdout, &stderr)
	if code != exitDone || stdout.Len() == 0 || stdout.Len() > maxAnswer {
		t.Errorf("got %d, %d bytes and %q", code, stdout.Len(), &stderr)
	}
}
