package httpserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// TestClientWithMostConnectionsLosesItsOldest, and no other client any.
func TestClientWithMostConnectionsLosesItsOldest(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := httpserver.Limit(inner, func() int { return 3 })
	connect := func(from string) (client, server net.Conn) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client, err := dialer.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if server, err = listener.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	kubelet, probed := connect("127.0.0.2")
	oldest, _ := connect("127.0.0.3")
	second, closed := connect("127.0.0.3")
	if err := errors.Join(closed.Close(), second.Close()); err != nil { // makes room
		t.Fatal(err)
	}
	for range 2 {
		_, _ = connect("127.0.0.3")
	}
	if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection of the client with most: got %v, want its end", err)
	}
	if _, err := probed.Write([]byte("x")); err != nil {
		t.Errorf("the connection of another client: %v", err)
	}
	if _, err := io.ReadFull(kubelet, make([]byte, 1)); err != nil {
		t.Errorf("the connection of another client: %v", err)
	}
}

// TestLargeHeadersAreRefused before they take memory.
func TestLargeHeadersAreRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server, err := httpserver.Listen(ctx, options())
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- server.Serve(ctx) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", server.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X", strings.Repeat("x", 32<<10))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s", response.Status)
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestScrapesAreBounded: those at the same time make all series once, and few readers hold them.
func TestScrapesAreBounded(t *testing.T) { synctest.Test(t, testScrapes) }

func testScrapes(t *testing.T) {
	const most = 3
	o, hangs, entered := options(), make(chan struct{}), make(chan struct{}, most)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hangs"}, func() float64 {
		entered <- struct{}{}
		<-hangs
		return 0
	}))
	o.Metrics = registry
	handler := httpserver.Handler(o)
	scrape := func() int {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return recorder.Code
	}
	codes := make(chan int, most)
	for range most {
		go func() { codes <- scrape() }()
	}
	<-entered
	synctest.Wait()
	if code := scrape(); code != http.StatusServiceUnavailable {
		t.Errorf("one more scrape gets %d", code)
	}
	close(hangs)
	for range most {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape gets %d", code)
		}
	}
	if len(entered) > 0 {
		t.Error("the series were made more than once")
	}
}
