package jobs

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	for name, tt := range map[string]struct {
		unused, due int
		since, want time.Duration
	}{
		"everything was used":            {0, 1, 0, 0},
		"a few are still written":        {3, 1, 10 * time.Millisecond, 140 * time.Millisecond},
		"that took long enough":          {3, 1, time.Minute, 0},
		"many are still written":         {1000, 255, 100 * time.Millisecond, 900 * time.Millisecond},
		"the batch is full":              {1000, 256, 0, 0},
		"many, but they waited a second": {1000, 255, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p paces
				if wait := p.wait("fs-1", tt.unused, tt.due); wait != 0 {
					t.Errorf("the first batch waits for %s", wait)
				}
				p.begin("fs-1")
				<-time.After(tt.since)
				if wait := p.wait("fs-1", tt.unused, tt.due); wait != tt.want {
					t.Errorf("the next one waits for %s, want %s", wait, tt.want)
				}
				if wait := p.wait("fs-2", tt.unused, tt.due); wait != 0 {
					t.Errorf("another file system waits for %s", wait)
				}
			})
		})
	}
}

func TestLookDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p paces
		want := func(what, fileSystemID string, delay time.Duration) {
			t.Helper()
			if got := p.lookDelay(fileSystemID); got != delay {
				t.Errorf("%s: operations are looked at after %s, want %s", what, got, delay)
			}
		}
		want("no batch is collected", "fs-1", enqueueDelay)
		p.collect("fs-1", time.Second)
		want("a batch is collected", "fs-1", longLookDelay)
		want("not of this file system", "fs-2", enqueueDelay)
		<-time.After(900 * time.Millisecond)
		want("it is nearly complete", "fs-1", 100*time.Millisecond)
		p.begin("fs-1")
		want("it was given", "fs-1", enqueueDelay)
	})
}
