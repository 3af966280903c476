package httpserver_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

func passes() error { return nil }

func fails() error { return errors.New("caches are not filled") }

func options() httpserver.Options {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "efs_stunnel_test"}, func() float64 { return 7 }))
	return httpserver.Options{
		Address: "127.0.0.1:0",
		Healthy: []httpserver.Check{{Name: "election", Func: passes}},
		Ready:   []httpserver.Check{{Name: "election", Func: passes}, {Name: "caches", Func: fails}},
		Metrics: registry,
		Log:     slog.New(slog.DiscardHandler),
	}
}

func TestHandler(t *testing.T) {
	tests := map[string]struct {
		method, path string
		pprof        bool
		client       string // "" for one on the loopback
		code         int
		body         string
	}{
		"healthy":              {"GET", "/healthz", false, "", 200, "[+] election\nok\n"},
		"not ready, with why":  {"GET", "/readyz", false, "", 503, "[+] election\n[-] caches: caches are not filled\nnot ok\n"},
		"metrics":              {"GET", "/metrics", false, "", 200, "efs_stunnel_test 7"},
		"nothing else":         {"GET", "/", false, "", 404, ""},
		"no profiles unasked":  {"GET", "/debug/pprof/", false, "", 404, ""},
		"profiles":             {"GET", "/debug/pprof/", true, "", 200, "goroutine"},
		"one profile":          {"GET", "/debug/pprof/goroutine?debug=1", true, "", 200, "goroutine profile:"},
		"the command line":     {"GET", "/debug/pprof/cmdline", true, "", 200, "test"},
		"profiles over IPv6":   {"GET", "/debug/pprof/", true, "::1", 200, "goroutine"},
		"mapped to IPv6":       {"GET", "/debug/pprof/", true, "::ffff:127.0.0.1", 200, "goroutine"},
		"no profiles outside":  {"GET", "/debug/pprof/", true, "10.0.0.4", 403, "profiles are for clients on the loopback"},
		"not one profile":      {"GET", "/debug/pprof/goroutine?debug=1", true, "10.0.0.4", 403, "loopback"},
		"metrics outside":      {"GET", "/metrics", true, "10.0.0.4", 200, "efs_stunnel_test 7"},
		"POST is refused":      {"POST", "/healthz", false, "", 405, ""},
		"load balancers' HEAD": {"HEAD", "/healthz", false, "", 200, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Pprof = tt.pprof
			recorder, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
			request.RemoteAddr = net.JoinHostPort(cmp.Or(tt.client, "127.0.0.1"), "40000")
			httpserver.Handler(o).ServeHTTP(recorder, request)
			if recorder.Code != tt.code || !strings.Contains(recorder.Body.String(), tt.body) {
				t.Errorf("got %d and %q, want %d and %q", recorder.Code, recorder.Body.String(), tt.code, tt.body)
			}
		})
	}
}

func TestOneBrokenMetricHidesNoOther(t *testing.T) {
	o := options()
	registry := prometheus.NewRegistry()
	registry.MustRegister(broken{})
	o.Metrics = prometheus.Gatherers{o.Metrics, registry}
	recorder := httptest.NewRecorder()
	httpserver.Handler(o).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "efs_stunnel_test 7") {
		t.Errorf("got %d and %q", recorder.Code, recorder.Body.String())
	}
}

// broken is a collector that has lost what it counts.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "broken", nil, nil), errors.New("lost"))
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestServeReturnsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server, err := httpserver.Listen(ctx, options())
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- server.Serve(ctx) }()
	url := "http://" + server.Addr().String() + "/healthz"
	if body, err := get(t.Context(), url); err != nil || !strings.HasSuffix(body, "ok\n") {
		t.Errorf("got %q, %v", body, err)
	}
	cancel()
	if err := <-result; err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if _, err := get(t.Context(), url); err == nil {
		t.Error("it answers after its end")
	}
}

func TestRequestsInFlightDoNotDelayTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hangs, entered := make(chan struct{}), make(chan struct{})
	defer close(hangs)
	o := options()
	o.Healthy = []httpserver.Check{{Name: "hangs", Func: func() error {
		close(entered)
		<-hangs
		return nil
	}}}
	server, err := httpserver.Listen(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- server.Serve(ctx) }()
	go func() { _, _ = get(t.Context(), "http://"+server.Addr().String()+"/healthz") }()
	<-entered
	cancel()
	if err := <-result; err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	first, err := httpserver.Listen(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Address = first.Addr().String()
	if _, err := httpserver.Listen(t.Context(), o); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Serve(ctx); err != nil {
		t.Errorf("serving: %v", err)
	}
}
