package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// leaderOf answers each request as one of the handlers does, in their order, and the last for ever.
func leaderOf(t *testing.T, handlers ...http.HandlerFunc) (flags []string) {
	t.Helper()
	n := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := handlers[min(n, len(handlers)-1)]
		n++
		handler(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // about clients that disconnect
	server.StartTLS()
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(server.Certificate().RawSubjectPublicKeyInfo)
	return []string{
		"--leader=" + server.Listener.Addr().String(), "--leader-key=" + hex.EncodeToString(key[:]), "--leader-token=" + token, "--linger=1m",
	}
}

func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func batchOf(t *testing.T, number int, ops ...operations.Operation) string {
	t.Helper()
	data, err := operations.EncodeBatch(operations.Batch{Number: number, Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWorkerCarriesOutTheNextBatch(t *testing.T) {
	w := newContainer(t, setup("pvc-a", "/a"))
	var asked []string
	flags := leaderOf(t, func(response http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		asked = append(asked, request.Header.Get("Authorization")+" "+string(body))
		switch len(asked) {
		case 1:
			_, _ = io.WriteString(response, batchOf(t, 2, setup("pvc-b", "/b"), cleanup("pvc-a", "/a")))
		case 2:
			response.WriteHeader(http.StatusNoContent)
		default:
			http.Error(response, "the Job is over", http.StatusConflict)
		}
	})
	if code := w.run(t.Context(), commandRun, flags...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &w.stderr)
	}
	if w.exists("a") || !w.exists("b") {
		t.Errorf("a: %v, b: %v", w.exists("a"), w.exists("b"))
	}
	if len(asked) != 3 || asked[0] != `Bearer token {"batch":1,"operations":[0]}` ||
		asked[1] != `Bearer token {"batch":2,"operations":[0,0]}` || asked[2] != `Bearer token {"batch":2,"operations":[]}` {
		t.Errorf("it asked %q", asked)
	}
	if report := w.report(2); report.Batch != 2 || !report.Succeeded() {
		t.Errorf("got %+v", report)
	}
}

// A worker that dies in a batch must not seem never to have begun it.
func TestMessageWhileABatchRuns(t *testing.T) {
	w := newContainer(t, setup("pvc-a", "/a"))
	flags := leaderOf(t, answer(http.StatusOK, batchOf(t, 2, setup("pvc-b", "/b"))), answer(http.StatusConflict, ""))
	w.progress = func(int) {
		if w.exists("b") {
			report := w.report(1)
			if report.Batch != 2 || report.Results[0].State != operations.Unknown {
				t.Errorf("got %+v", report)
			}
			w.progress = nil
		}
	}
	w.run(t.Context(), commandRun, flags...)
	if w.progress != nil {
		t.Error("the second batch was not run")
	}
}

func TestAnswersThatEndTheWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		text    string
	}{
		"refused":            {answer(http.StatusUnauthorized, "no such token"), "401 Unauthorized: no such token"},
		"another batch":      {answer(http.StatusOK, batchOf(t, 3, setup("pvc-b", "/b"))), "sent batch 3 after batch 1"},
		"half an answer":     {answer(http.StatusOK, batchOf(t, 2, setup("pvc-b", "/b"))[:30]), "reading a batch"},
		"too large":          {answer(http.StatusOK, strings.Repeat(" ", operations.MaxBatchBytes+1)), "bytes, more than"},
		"an unknown field":   {answer(http.StatusOK, `{"batch":2,"began":"2026-01-02T03:04:05Z","operations":{"operations":[]},"shell":"rm"}`), "unknown field"},
		"a redirect":         {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302"},
		"busy for too long":  {answer(http.StatusServiceUnavailable, "not known yet"), "not known yet"},
		"hangs up each time": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newContainer(t, setup("pvc-a", "/a"))
			flags := leaderOf(t, tt.handler)
			if code := w.run(t.Context(), commandRun, flags...); code != exitDone {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(w.stderr.String(), tt.text) || !strings.Contains(w.stderr.String(), "worker ended") {
				t.Errorf("want %q in:\n%s", tt.text, &w.stderr)
			}
			if report := w.report(1); !report.Succeeded() || w.exists("b") {
				t.Errorf("the report is %+v, b exists: %v", report, w.exists("b"))
			}
		})
	}
}

func TestAnotherLeadersKey(t *testing.T) {
	asked, text := false, "TLS handshake timeout"
	flags := leaderOf(t, func(http.ResponseWriter, *http.Request) { asked = true })
	flags[1] = "--leader-key=" + strings.Repeat("00", sha256.Size)
	for strings.Contains(text, "TLS handshake timeout") { // a worker does not wait long, and a busy machine may take longer
		w := newContainer(t, setup("pvc-a", "/a"))
		w.run(t.Context(), commandRun, flags...)
		text = w.stderr.String()
	}
	if asked || !strings.Contains(text, "another key") {
		t.Errorf("asked: %v, log:\n%s", asked, text)
	}
}

// A policy that drops packets, or a process that is stopped: connections are never answered.
func TestLeaderThatIsSilent(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w := newContainer(t, setup("pvc-a", "/a"))
	flags := leaderOf(t, answer(http.StatusOK, ""))
	flags[0] = "--leader=" + silent.Addr().String()
	if code := w.run(t.Context(), commandRun, flags...); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(w.stderr.String(), "the leader cannot be reached") {
		t.Errorf("log:\n%s", &w.stderr)
	}
	if longest := reachTime + 2*connectTime + reachRetry; longest > 3*time.Second {
		t.Errorf("claims wait for %s until the next Job begins", longest)
	}
}

// TestWorkerOfALostNodeEndsBeforeTheNextLeaderLeads, which would have to wait for it: nothing comes back from a node
// that is lost.
func TestWorkerOfALostNodeEndsBeforeTheNextLeaderLeads(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(options{leader: "lost", leaderToken: token})
		transport, ok := l.client.Transport.(*http.Transport)
		if !ok {
			t.Fatal("the client has another transport")
		}
		l.url, transport.TLSClientConfig = "http://lost", nil
		connected := false
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if connected {
				loop.Pause(ctx, connectTime)
				return nil, os.ErrDeadlineExceeded
			}
			connected = true
			worker, node := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, node) }()
			return worker, nil
		}
		start := time.Now()
		_, err := l.next(t.Context(), operations.Report{Batch: 1})
		if took := time.Since(start); err == nil || took >= wellknown.DefaultLeaseDuration || took < operations.LongestPoll {
			t.Errorf("it ends after %s, want more than a poll and less than the Lease's %s: %v", took, wellknown.DefaultLeaseDuration, err)
		}
		transport.CloseIdleConnections()
	})
}

func TestWorkerEndsWhenNothingComes(t *testing.T) {
	w := newContainer(t, setup("pvc-a", "/a"))
	flags := leaderOf(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client hangs up
		<-r.Context().Done()
	})
	flags[3] = "--linger=10ms"
	if code := w.run(t.Context(), commandRun, flags...); code != exitDone || !strings.Contains(w.stderr.String(), "nothing more to do") {
		t.Errorf("exit code %d, log:\n%s", code, &w.stderr)
	}
}

func TestLingerEndsInTime(t *testing.T) {
	j := job{options: options{leader: "x:1", linger: time.Minute, deadline: 10 * time.Minute}}
	for left, want := range map[time.Duration]bool{10 * time.Minute: true, 6 * time.Minute: true, 4 * time.Minute: false} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), left, errors.New("deadline"))
		if got := j.lingerTime(ctx) > 0; got != want {
			t.Errorf("with %s left: %v", left, got)
		}
		cancel()
	}
}

func TestLeaderFlags(t *testing.T) {
	for text, args := range map[string][]string{
		"--leader \"x\"":       {"--leader=x"},
		"--leader-key":         {"--leader=x:1", "--leader-key=00"},
		"needs --leader-token": {"--leader=x:1", "--leader-key=" + strings.Repeat("00", 32)},
	} {
		if _, err := parseOptions(append([]string{"--file-system-id=fs-1"}, args...), noEnvironment, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got %v, want %q", args, err, text)
		}
	}
}
