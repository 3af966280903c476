package crash_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/test/integration/crash"
)

// server records the requests that arrive.
func server(t *testing.T) (url string, arrived func() []string) {
	t.Helper()
	seen := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.URL.Path
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string {
		var all []string
		for len(seen) > 0 {
			all = append(all, <-seen)
		}
		return all
	}
}

// runProgram sends three writes with other requests between them, and returns how many were answered.
func runProgram(t *testing.T, url string, point *crash.Point) (answered int) {
	t.Helper()
	client := &http.Client{Transport: point.Wrap(http.DefaultTransport)}
	for _, line := range []string{"POST /a", "GET /a", "POST /events", "PATCH /b", "PUT /leases", "DELETE /c"} {
		method, path, _ := strings.Cut(line, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			if !errors.Is(err, crash.ErrCrashed) {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		answered++
		_ = response.Body.Close()
	}
	return answered
}

func TestNoRequestIsSentAfterTheCrash(t *testing.T) {
	tests := map[string]struct {
		point    *crash.Point
		arrived  []string
		answered int
		kills    int
	}{
		"nowhere":              {&crash.Point{}, []string{"POST /a", "GET /a", "POST /events", "PATCH /b", "PUT /leases", "DELETE /c"}, 6, 0},
		"before the first":     {&crash.Point{Write: 1, Moment: crash.Before}, nil, 0, 1},
		"after the first":      {&crash.Point{Write: 1, Moment: crash.After}, []string{"POST /a"}, 0, 1},
		"before the second":    {&crash.Point{Write: 2, Moment: crash.Before}, []string{"POST /a", "GET /a", "POST /events"}, 3, 1},
		"after the counted":    {&crash.Point{Write: 2, Moment: crash.After, Ignore: "/b"}, []string{"POST /a", "GET /a", "POST /events", "PATCH /b", "PUT /leases", "DELETE /c"}, 5, 1},
		"after the second":     {&crash.Point{Write: 2, Moment: crash.After}, []string{"POST /a", "GET /a", "POST /events", "PATCH /b"}, 3, 1},
		"after the last write": {&crash.Point{Write: 4, Moment: crash.Before}, []string{"POST /a", "GET /a", "POST /events", "PATCH /b", "PUT /leases", "DELETE /c"}, 6, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			url, arrived := server(t)
			kills := 0
			tt.point.Kill = func() { kills++ }
			if answered := runProgram(t, url, tt.point); answered != tt.answered {
				t.Errorf("%d answers, want %d", answered, tt.answered)
			}
			if got := arrived(); !slices.Equal(got, tt.arrived) {
				t.Errorf("arrived: %q, want %q", got, tt.arrived)
			}
			if kills != tt.kills || tt.point.Reached() != (tt.kills > 0) {
				t.Errorf("%d kills, reached %v", kills, tt.point.Reached())
			}
		})
	}
}
