package clock

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// machine is a Clock on a machine whose clocks the test sets, and an apiserver that answers.
type machine struct {
	*Clock
	server  time.Time     // what the apiserver's clock says
	ahead   time.Duration // of the machine's wall clock
	elapsed time.Duration
	logged  bytes.Buffer

	took  time.Duration // by a request
	later time.Duration // what of it comes after the response was written
	reply func(*http.Response) error
}

func newMachine(ahead time.Duration) *machine {
	m := &machine{server: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ahead: ahead}
	m.Clock = New("test", func() time.Time { return m.server.Add(m.ahead) }, slog.New(slog.NewTextHandler(&m.logged, nil)))
	m.Clock.elapsed = func() time.Duration { return m.elapsed }
	return m
}

func (m *machine) pass(d time.Duration) { m.server, m.elapsed = m.server.Add(d), m.elapsed+d }

// RoundTrip answers like an apiserver.
func (m *machine) RoundTrip(*http.Request) (*http.Response, error) {
	m.pass(m.took - m.later)
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {m.server.Format(http.TimeFormat)}}}
	m.pass(m.later)
	if m.reply != nil {
		return response, m.reply(response)
	}
	return response, nil
}

func (m *machine) ask(t *testing.T, times int) {
	t.Helper()
	for range times {
		m.pass(1700 * time.Millisecond) // so that the Date header is cut at different places
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://apiserver/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.Wrap(m).RoundTrip(request) //nolint:bodyclose // there is none
	}
}

func (m *machine) wrongBy() time.Duration { return m.Now().Sub(m.server) }

func TestTimeIsTheApiservers(t *testing.T) {
	const day = 24 * time.Hour
	for _, ahead := range []time.Duration{0, 16 * time.Minute, -16 * time.Minute, time.Hour, -time.Hour, 300 * day, -300 * day} {
		for _, took := range []time.Duration{0, 300 * time.Millisecond, 4 * time.Second} {
			m := newMachine(ahead)
			m.took = took
			for i := range 20 {
				m.ask(t, 1)
				if wrong := m.wrongBy().Abs(); wrong > time.Second+took/2 {
					t.Errorf("clock %s ahead, requests of %s: wrong by %s after %d", ahead, took, wrong, i+1)
				}
			}
			m.pass(time.Hour)
			if wrong := m.wrongBy().Abs(); wrong > time.Second+took/2 {
				t.Errorf("clock %s ahead, requests of %s: wrong by %s an hour later", ahead, took, wrong)
			}
			offset := m.offset()
			if m.origin.IsZero() || (offset-ahead).Abs() > time.Second+took/2 {
				t.Errorf("offset %s; want about %s", offset, ahead)
			}
		}
	}
}

// TestTimeDoesNotMoveWithTheResolution: what is derived from Now, such as the time of a retry in an
// event, must be the same at each sync.
func TestTimeDoesNotMoveWithTheResolution(t *testing.T) {
	m := newMachine(time.Hour)
	m.ask(t, 1)
	wrong := m.wrongBy()
	for range 50 {
		m.ask(t, 1)
		if m.wrongBy() != wrong {
			t.Fatalf("the time moved from %s to %s against the apiserver's", wrong, m.wrongBy())
		}
	}
}

func TestClockThatIsSetWhileTheProgramRuns(t *testing.T) {
	m := newMachine(0)
	m.ask(t, 5)
	for _, ahead := range []time.Duration{time.Hour, -40 * time.Minute, 72 * time.Hour, 0} {
		m.ahead = ahead // the monotonic clock continues as before
		if wrong := m.wrongBy().Abs(); wrong > time.Second {
			t.Errorf("set to %s: wrong by %s", ahead, wrong)
		}
	}
}

// TestMachineThatSlept: the monotonic clock stands still meanwhile.
func TestMachineThatSlept(t *testing.T) {
	m := newMachine(0)
	m.ask(t, 5)
	m.server = m.server.Add(3 * time.Hour)
	m.ask(t, 3)
	if wrong := m.wrongBy().Abs(); wrong > time.Second {
		t.Errorf("wrong by %s", wrong)
	}
}

func TestResponsesThatSayNothing(t *testing.T) {
	elsewhere := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).Format(http.TimeFormat)
	for name, spoil := range map[string]func(*machine, *http.Response) error{
		"no Date":  func(_ *machine, r *http.Response) error { r.Header.Del("Date"); return nil },
		"bad Date": func(_ *machine, r *http.Response) error { r.Header.Set("Date", "yesterday"); return nil },
		"load balancer's": func(_ *machine, r *http.Response) error {
			r.Header.Set("Date", elsewhere)
			r.StatusCode = 503
			return nil
		},
		"no response": func(*machine, *http.Response) error { return errors.New("connection refused") },
		"too late":    func(m *machine, _ *http.Response) error { m.pass(6 * time.Second); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(time.Hour)
			m.reply = func(r *http.Response) error { return spoil(m, r) }
			m.ask(t, 5)
			if !m.origin.IsZero() || m.wrongBy() != time.Hour {
				t.Errorf("it measured something: wrong by %s", m.wrongBy())
			}
			m.reply = nil
			m.ask(t, 1)
			if m.origin.IsZero() || m.wrongBy().Abs() > time.Second {
				t.Errorf("it measured nothing: wrong by %s", m.wrongBy())
			}
		})
	}
}

// TestSingleWrongDates: one apiserver of three has a clock of its own.
func TestSingleWrongDates(t *testing.T) {
	m := newMachine(0)
	m.ask(t, 5)
	request := 0
	m.reply = func(r *http.Response) error {
		if request++; request%3 == 0 {
			r.Header.Set("Date", m.server.Add(time.Hour).Format(http.TimeFormat))
		}
		return nil
	}
	for range 30 {
		m.ask(t, 1)
		if wrong := m.wrongBy().Abs(); wrong > time.Second {
			t.Errorf("wrong by %s after %d", wrong, request)
		}
	}
}

func TestWrongClockIsWarnedAboutOnce(t *testing.T) {
	m := newMachine(20 * time.Second)
	logged := func(text string) int { return strings.Count(m.logged.String(), text) }
	m.ask(t, 10)
	if m.logged.Len() > 0 {
		t.Errorf("20 s are warned about:\n%s", &m.logged)
	}
	m.ahead = -time.Hour
	m.ask(t, 10)
	if logged("level=WARN") != 1 || logged("it is 1h0m0s behind; check the node's time service") != 1 {
		t.Errorf("logged\n%s", &m.logged)
	}
	m.ahead = 20 * time.Second
	m.ask(t, 10) // not right enough to be forgotten
	m.ahead = time.Second
	m.ask(t, 10)
	if logged("level=WARN") != 1 || logged("agrees with the apiserver's again") != 1 {
		t.Errorf("logged\n%s", &m.logged)
	}
	m.ahead = time.Hour
	m.ask(t, 1)
	if logged("level=WARN") != 2 || logged("it is 1h0m0s ahead") != 1 {
		t.Errorf("logged\n%s", &m.logged)
	}
}

func TestMetricIsThereOnceItIsMeasured(t *testing.T) {
	m := newMachine(-time.Hour)
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d series, error %v", n, err)
	}
	m.ask(t, 5)
	if got := testutil.ToFloat64(m); got > -3599 || got < -3601 {
		t.Errorf("got %f", got)
	}
}
