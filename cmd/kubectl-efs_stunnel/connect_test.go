package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// useServer makes a kubeconfig for an apiserver that gives every request the same answer, an hour from
// now.
func useServer(t *testing.T, code int, reason metav1.StatusReason) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "message": "no\u001b[2J", "code": %d}`, reason, code)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, namespace: team}}]\n" +
		"clusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
}

func TestUserWithoutRightsIsToldWhichAreMissing(t *testing.T) {
	useServer(t, http.StatusForbidden, metav1.StatusReasonForbidden)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	code := run(t.Context(), []string{"status"}, streams, connect)
	for _, want := range []string{"you may not read everything", "list persistentvolumeclaims in namespace team", "list nodes in all namespaces"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
	if code != exitUnknown || errOut.Len() > 0 {
		t.Errorf("code %d, %s", code, errOut)
	}
}

func TestUserWithoutCredentialsGetsAnError(t *testing.T) {
	useServer(t, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	code := run(t.Context(), []string{"doctor"}, streams, connect)
	if text := errOut.String(); code != exitUnknown || out.Len() > 0 || !strings.HasPrefix(text, "error: ") || strings.Contains(text, "\x1b") {
		t.Errorf("code %d, %q, %q", code, out, text)
	}
}

// TestTimeIsThatOfTheApiserver: a Lease must not seem expired because the clock of a laptop is wrong.
func TestTimeIsThatOfTheApiserver(t *testing.T) {
	useServer(t, http.StatusForbidden, metav1.StatusReasonForbidden)
	c, err := connect(genericclioptions.NewConfigFlags(true))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}) // the error has the time, too
	if ahead := time.Until(c.now()); ahead < time.Minute {
		t.Errorf("the time is %s ahead, want an hour", ahead)
	}
}
