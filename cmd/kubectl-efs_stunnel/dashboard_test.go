package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
)

// TestDashboardServesUntilItIsInterrupted reads the address that is printed.
func TestDashboardServesUntilItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	printed, out := io.Pipe()
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard}
	connect := func(genericclioptions.RESTClientGetter) (connection, error) {
		return connection{client: fake.NewClientset(), now: time.Now}, nil
	}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"dashboard"}, streams, connect)
		_ = out.Close() // ends a read that failed
	}()
	buffer := make([]byte, 256)
	n, err := printed.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	url, _, _ := strings.Cut(string(buffer[:n]), "\n")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(url, "http://127.0.0.1:") || !strings.Contains(string(text), "ManagerMissing") {
		t.Errorf("%s: code %d, %v", url, answer.StatusCode, err)
	}
	cancel()
	if got := <-code; got != exitHealthy {
		t.Errorf("code %d", got)
	}
}
