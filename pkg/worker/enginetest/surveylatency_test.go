package enginetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/usage"
)

// Many small volumes, one with many directories, and one with many files in one directory are counted at
// nearly the speed of as many goroutines as there are, and never faster than the rate.
func TestSurveyHidesLatency(t *testing.T) {
	shapes := map[string]func(w *fixture){
		"many volumes": func(w *fixture) {
			var paths []string
			for i := range 60 {
				paths = append(paths, fmt.Sprintf("/team/v%d", i))
				w.write(fmt.Sprintf("/team/v%d/file", i), "x")
			}
			w.volumes(paths...)
		},
		"many directories": func(w *fixture) {
			w.volumes("/team/a")
			for i := range 600 {
				w.write(fmt.Sprintf("/team/a/%d/%d/file", i%20, i), "x")
			}
		},
		"many files": func(w *fixture) {
			w.volumes("/team/a")
			for i := range 2000 {
				w.write(fmt.Sprintf("/team/a/%d", i), "x")
			}
		},
	}
	for name, make := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				make(w)
				alone, requests := w.surveyWithLatency(1, 1e6)
				parallel, _ := w.surveyWithLatency(24, 1e6)
				if least := time.Duration(requests) * 5 * time.Millisecond; alone < least {
					t.Errorf("one worker has done %d requests in %s, want at least %s", requests, alone, least)
				}
				if parallel*8 > alone {
					t.Errorf("%d workers took %s, one %s", 24, parallel, alone)
				}
				slow, requests := w.surveyWithLatency(24, 100)
				// As many as the burst begin at once, and the limiter rounds the times of the others.
				if least := time.Duration(requests)*10*time.Millisecond - 51*time.Millisecond; slow < least {
					t.Errorf("%d requests took %s, want at least %s", requests, slow, least)
				}
			})
		})
	}
}

// The attributes of files that the client has with their names cost the server nothing.
func TestSurveyDoesNotWaitForWhatTheClientHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.volumes("/team/a")
		for i := range 2000 {
			w.write(fmt.Sprintf("/team/a/%d", i), "x")
		}
		f := w.open(nil)
		defer f.Close()
		start := time.Now()
		if err := usage.Survey(t.Context(), f, usage.Options{Rate: 100, Found: func(operations.Usage) error { return nil }}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("2000 files whose attributes are known took %s with 100 requests in a second", took)
		}
	})
}

// withLatency has each request take 5 ms, and counts them.
func withLatency(f *fsroot.FileSystem) *atomic.Int64 {
	var all atomic.Int64
	f.Request = func(n int) {
		all.Add(int64(n))
		<-time.After(time.Duration(n) * 5 * time.Millisecond)
	}
	return &all
}

// surveyWithLatency is how long a survey takes with 5 ms for each request.
func (w *fixture) surveyWithLatency(workers, rate int) (took time.Duration, requests int64) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	all := withLatency(f)
	start := time.Now()
	err := usage.Survey(context.Background(), f, usage.Options{Workers: workers, Rate: rate, Found: func(operations.Usage) error { return nil }})
	if err != nil {
		w.t.Fatal(err)
	}
	return time.Since(start), all.Load()
}
