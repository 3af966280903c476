package certificates

import (
	"errors"
	"testing"
	"time"
)

func TestRetryIsDueAfterTheClockWasSetBack(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		failedAt time.Time // by the clock of then
		want     bool
	}{
		"just now":                       {now, false},
		"a minute before":                {now.Add(-maxRetry), true},
		"while the clock was wrong":      {now.AddDate(1, 0, 0), true},
		"while it was a few seconds off": {now.Add(2 * time.Second), false},
	} {
		var c certificate
		c.recordFailure(errors.New("there are no credentials"), tt.failedAt)
		if got := c.isDue(now); got != tt.want {
			t.Errorf("failed %s: due %v, want %v", name, got, tt.want)
		}
	}
}
