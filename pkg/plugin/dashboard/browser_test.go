package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/test/support/dashboardtest"
)

// browserVariable names the headless browser, a Chromium. Tests with it are part of "make browser" only: it is
// a large package.
const browserVariable = "EFS_STUNNEL_BROWSER"

// pageInBrowser is the document as a browser has it some seconds after it has opened the page.
func pageInBrowser(t *testing.T, gather Gather) string {
	t.Helper()
	program := os.Getenv(browserVariable)
	if program == "" {
		t.Skip("want " + browserVariable + ": make browser sets it")
	}
	server := httptest.NewUnstartedServer(nil)
	handler := New(server.Listener.Addr().String(), gather)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.mu.Lock()
		handler.read = time.Time{} // the browser's time is faster: each request is to read the cluster
		handler.mu.Unlock()
		handler.ServeHTTP(w, r)
	})
	server.Start()
	defer server.Close()
	return dashboardtest.Document(t, program, handler.URL())
}

// TestPageInABrowser: the page's own policy lets its style and its script run, and nothing that users write.
func TestPageInABrowser(t *testing.T) {
	const hostile = "</td><script>document.title='attacked'</script><img src=x onerror=\"document.title='attacked'\">\x1b[2J\nnext\u202e"
	read := 0
	text := pageInBrowser(t, func(context.Context) (*inspect.Snapshot, error) {
		if read++; read == 1 {
			return snapshot("the first state"), nil
		}
		return snapshot(hostile), nil
	})
	if read < 2 || strings.Contains(text, "the first state") {
		t.Errorf("the page was read %d times, and is not refreshed:\n%s", read, text)
	}
	for _, want := range []string{"<title>(", fsID, "team/reports", "ClaimRejected", "TunnelUnhealthy", "3.0 GiB", "&lt;script&gt;document.title='attacked'", "?[2J next?"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	for _, not := range []string{"<img", "<title>attacked", `role="alert"`} {
		if strings.Contains(text, not) {
			t.Errorf("it has %q", not)
		}
	}
	if !strings.Contains(text, `<p id="stale" role="status" hidden="">`) {
		t.Error("it says that the cluster does not answer")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestBrowserSaysThatTheClusterDoesNotAnswer(t *testing.T) {
	read := 0
	text := pageInBrowser(t, func(context.Context) (*inspect.Snapshot, error) {
		if read++; read == 1 {
			return snapshot("an earlier state"), nil
		}
		return nil, errors.New("connection refused")
	})
	if !strings.Contains(text, "an earlier state") || !strings.Contains(text, `<p id="stale" role="status">The cluster does not answer`) {
		t.Error(text)
	}
}
