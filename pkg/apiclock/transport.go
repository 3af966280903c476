package apiclock

import "net/http"

// Wrap is for rest.Config.Wrap: it reads the Date header of what the apiserver answers.
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
