// Package crash kills a program at one of its writes: before the request leaves, or after the
// apiserver has done it and before the program hears of it. Between the two lies everything
// that a process can die at as far as the cluster can tell.
package crash

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// ErrCrashed is what the program gets of every request from its end on.
var ErrCrashed = errors.New("the program has crashed")

// Moment is when the program dies.
type Moment string

// The moments.
const (
	Before Moment = "before" // the request never leaves
	After  Moment = "after"  // the request is done, and the answer never arrives
)

// Point is where a program dies. Its zero value never kills and only counts.
type Point struct {
	// Write is which of the program's writes it is, from 1; 0 is none.
	Write  int
	Moment Moment
	// Ignore is part of the paths whose writes are not counted, because what else happens in the
	// cluster brings them about; "" counts all.
	Ignore string
	// Kill ends the program, for example its context. It must not wait for that.
	Kill func()

	mu     sync.Mutex
	writes []string // guarded by mu
	dead   bool     // guarded by mu
}

// String names the point and, when it was reached, the write.
func (p *Point) String() string {
	if writes := p.Writes(); p.Write > 0 && p.Write <= len(writes) {
		return fmt.Sprintf("%s write %d (%s)", p.Moment, p.Write, writes[p.Write-1])
	}
	return fmt.Sprintf("%s write %d", p.Moment, p.Write)
}

// Writes are the requests that were counted, in the order in which they began.
func (p *Point) Writes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes...)
}

// Reached says whether the program got as far.
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
		_ = response.Body.Close() // nobody reads it
	}
	return nil, ErrCrashed
}

// count says whether the program is dead, or dies of this request. From that request on no
// other leaves, also while its answer is waited for.
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

// counts says which requests change something that a next run of the program builds on. Events
// are sent whenever there is time, so their places would differ from run to run.
func counts(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	for _, passing := range []string{"/events", "/leases"} {
		if strings.Contains(request.URL.Path, passing) {
			return false
		}
	}
	return true
}

// Everywhere has a program die before its first write, after it, before its second one and so
// on, until a life is over before its point is reached. The name of each life's point is for
// t.Run. A life without end is cut at limit writes, which is an error.
func Everywhere(limit int, life func(point *Point)) error {
	for write := 1; write <= limit; write++ {
		for _, moment := range []Moment{Before, After} {
			point := &Point{Write: write, Moment: moment}
			life(point)
			if !point.Reached() {
				return nil
			}
		}
	}
	return fmt.Errorf("the program still writes after %d writes", limit)
}
