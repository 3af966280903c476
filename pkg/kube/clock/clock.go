// Package clock gives the apiserver's time on a machine whose own clock may be wrong by any
// amount, or be set while the program runs. Times in objects are the apiserver's, so a program that compares
// one of them with "now" takes Clock.Now.
//
// The clock is measured on the Date header of the responses to the program's ordinary requests, and
// uses the machine's monotonic clock between them.
package clock

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	maxRoundTrip = 5 * time.Second // how long a request may take to be used: half of it is the possible error
	// samples is the number of measurements that are kept. Their median ignores a single response that is
	// wrong, and follows a change after three.
	samples    = 5
	resolution = time.Second // that of the Date header, and dateError its error on average
	dateError  = resolution / 2
	// steady is the distance that the median may have from the time in use: less is the Date header's
	// resolution and the network, and times that are derived from Now should not move with those.
	steady    = 2 * time.Second
	tolerated = 30 * time.Second // from when on a wrong clock is warned about
)

// Clock is safe for use by many at once. It is a prometheus.Collector.
type Clock struct {
	wall    func() time.Time     // the machine's clock
	elapsed func() time.Duration // since the Clock was made, by the machine's monotonic clock
	log     *slog.Logger
	desc    *prometheus.Desc

	mu      sync.Mutex  // protects following
	origins []time.Time // the last measurements of origin, the newest last
	origin  time.Time   // the apiserver's time when elapsed was 0; zero before the first measurement
	warned  bool        // the machine's clock was wrong when it was last compared
}

// New makes a clock that nothing was measured for: until then it is the wall clock, which is time.Now
// but for tests. The metric's name begins with namespace.
func New(namespace string, wall func() time.Time, log *slog.Logger) *Clock {
	start := time.Now()
	return &Clock{
		wall: wall, elapsed: func() time.Duration { return time.Since(start) }, log: log,
		desc: prometheus.NewDesc(namespace+"_clock_offset_seconds",
			"Seconds by which the clock of the manager's node is ahead of the apiserver's, negative when it is behind; absent before the apiserver's first response.", nil, nil),
	}
}

// Now returns the apiserver's time. It has no monotonic reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.origin.IsZero() {
		return c.wall().Round(0)
	}
	return c.origin.Add(c.elapsed())
}

// Wrong returns what is wrong with the machine's clock, "" for nothing.
func (c *Clock) Wrong() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.warned {
		return ""
	}
	return describe(c.offset())
}

// offset returns the lead of the machine's clock over the apiserver's.
func (c *Clock) offset() time.Duration { return c.wall().Round(0).Sub(c.now()) }

// measure takes the Date of a response whose request began and ended at these times of elapsed.
func (c *Clock) measure(date time.Time, began, ended time.Duration) {
	if ended-began > maxRoundTrip {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origins = append(c.origins, date.Add(dateError-(began+ended)/2))
	if len(c.origins) > samples {
		c.origins = c.origins[1:]
	}
	sorted := slices.SortedFunc(slices.Values(c.origins), time.Time.Compare)
	median := sorted[len(sorted)/2]
	if c.origin.IsZero() || median.Sub(c.origin).Abs() > steady {
		c.origin = median
	}
	c.warn(c.offset())
}

// warn logs when the machine's clock begins to be wrong, and when it ceases to be.
func (c *Clock) warn(offset time.Duration) {
	switch {
	case !c.warned && offset.Abs() > tolerated:
		c.warned = true
		c.log.Warn("clock of this node differs from the apiserver's; decisions use the apiserver's time",
			"duration", offset.Round(time.Second), "message", describe(offset)+"; check the node's time service")
	case c.warned && offset.Abs() < tolerated/2:
		c.warned = false
		c.log.Info("clock of this node agrees with the apiserver's again", "duration", offset.Round(time.Second))
	}
}

func describe(offset time.Duration) string {
	if offset < 0 {
		return fmt.Sprintf("it is %s behind", -offset.Round(time.Second))
	}
	return fmt.Sprintf("it is %s ahead", offset.Round(time.Second))
}

// Describe implements prometheus.Collector.
func (c *Clock) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c *Clock) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.origin.IsZero() {
		metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, c.offset().Seconds())
	}
}

// Wrap reads the Date header of the apiserver's responses; it is for rest.Config.Wrap.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// RoundTrip implements http.RoundTripper. It returns when the headers are there, which a watch's are
// at its start, so their Date is never older than the request.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	began := t.clock.elapsed()
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode >= http.StatusInternalServerError { // a load balancer's, maybe
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.clock.measure(date, began, t.clock.elapsed())
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find what is inside.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
