// Package crash kills a program at one of its writes: before the request is sent, or after the
// apiserver has carried it out and before the program has the response. For the cluster, a process
// that dies at any other line looks like one of the two.
package crash

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// ErrCrashed is the error of every request after the crash.
var ErrCrashed = errors.New("the program has crashed")

// Moment is the moment of a write at which the program dies.
type Moment string

// The moments.
const (
	Before Moment = "before" // the request is never sent
	After  Moment = "after"  // the request is carried out, and the response never arrives
)

// Point is the point at which a program dies. The zero Point only counts writes.
type Point struct {
	// Write is the number of the program's write, from 1; 0 is none.
	Write  int
	Moment Moment
	// Ignore is part of the paths whose writes are not counted, because other tests in the cluster
	// cause them, too; "" counts all.
	Ignore string
	// Kill ends the program, for example its context, and must not wait for the end.
	Kill func()

	mu     sync.Mutex
	writes []string // guarded by mu
	dead   bool     // guarded by mu
}

// String names the point and, once it is reached, the write.
func (p *Point) String() string {
	if writes := p.Writes(); p.Write > 0 && p.Write <= len(writes) {
		return fmt.Sprintf("%s write %d (%s)", p.Moment, p.Write, writes[p.Write-1])
	}
	return fmt.Sprintf("%s write %d", p.Moment, p.Write)
}

// Writes returns the counted requests, in the order in which they began.
func (p *Point) Writes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes...)
}

// Reached reports whether the program has died at the point.
func (p *Point) Reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Wrap is for rest.Config.Wrap.
func (p *Point) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		return p.roundTrip(next, request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (p *Point) roundTrip(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	dead, dies := p.count(request)
	if dies {
		defer p.die()
	}
	if dead || dies && p.Moment == Before {
		return nil, ErrCrashed
	}
	response, err := next.RoundTrip(request)
	if !dies {
		return response, err
	}
	if err == nil {
		_ = response.Body.Close() // the program never reads it
	}
	return nil, ErrCrashed
}

// count reports whether the program is dead, or dies at this request. After that request no other is sent, also
// while its response is waited for.
func (p *Point) count(request *http.Request) (dead, dies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || !counts(request) || p.Ignore != "" && strings.Contains(request.URL.Path, p.Ignore) {
		return p.dead, false
	}
	p.writes = append(p.writes, request.Method+" "+request.URL.Path)
	p.dead = len(p.writes) == p.Write
	return false, p.dead
}

func (p *Point) die() {
	if p.Kill != nil {
		p.Kill()
	}
}

// counts reports whether a request writes what the next run of the program reads. Events are sent in the
// background, so their positions would differ from run to run.
func counts(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	for _, ignored := range []string{"/events", "/leases"} {
		if strings.Contains(request.URL.Path, ignored) {
			return false
		}
	}
	return true
}
