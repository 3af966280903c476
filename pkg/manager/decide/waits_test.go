package decide

import (
	"testing"
	"time"
)

// TestWaitIsCountedWithoutAClock: whatever clock wrote when an attempt ended, the wait after it is not
// over in its first minute, and never longer than it is.
func TestWaitIsCountedWithoutAClock(t *testing.T) {
	const wait = 4 * time.Minute
	for name, tt := range map[string]struct {
		wait      time.Duration
		ended     time.Duration // before now
		seen      time.Duration // before now
		unseen    bool
		noEnd     bool
		remaining time.Duration // from now
	}{
		"clocks agree":                    {wait: wait, ended: time.Minute, seen: time.Minute - time.Second, remaining: 3 * time.Minute},
		"it ended an hour ago, by clocks": {wait: wait, ended: time.Hour, remaining: time.Minute},
		"and was seen two minutes ago":    {wait: wait, ended: time.Hour, seen: 2 * time.Minute, remaining: -time.Minute},
		"days ago, short wait":            {wait: time.Second, ended: 72 * time.Hour, remaining: time.Second},
		"it ends in an hour, by clocks":   {wait: wait, ended: -time.Hour, remaining: wait},
		"in days, seen two minutes ago":   {wait: wait, ended: -72 * time.Hour, seen: 2 * time.Minute, remaining: 2 * time.Minute},
		"not seen":                        {wait: wait, ended: time.Hour, unseen: true, remaining: wait - time.Hour},
		"no end, begun an hour ago":       {wait: wait, noEnd: true, ended: time.Hour, remaining: time.Minute},
		"no wait":                         {ended: -time.Hour, remaining: 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := Attempt{Began: now.Add(-tt.ended), Ended: now.Add(-tt.ended), OverSince: now.Add(-tt.seen)}
			if tt.noEnd {
				a.Ended = time.Time{}
			}
			if tt.unseen {
				a.OverSince = time.Time{}
			}
			if got := a.after(tt.wait).Sub(now); got != tt.remaining {
				t.Errorf("the wait is over in %s, want %s", got, tt.remaining)
			}
		})
	}
}
