package mountjobs_test

import (
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestBackoff(t *testing.T) {
	tests := map[string]struct {
		first    time.Duration
		failures int
		want     time.Duration
	}{
		"nothing failed, nothing to wait for": {time.Minute, 0, 0},
		"never before":                        {time.Minute, -1, 0},
		"the first wait":                      {time.Minute, 1, time.Minute},
		"twice as long":                       {time.Minute, 2, 2 * time.Minute},
		"and again":                           {time.Minute, 4, 8 * time.Minute},
		"up to sixteen times":                 {time.Minute, 5, 16 * time.Minute},
		"and no more":                         {time.Minute, 6, 16 * time.Minute},
		"however often":                       {time.Minute, 1 << 40, 16 * time.Minute},
		"first wait of zero":                  {0, 3, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mountjobs.Backoff(tt.first, tt.failures); got != tt.want {
				t.Errorf("Backoff(%s, %d) = %s, want %s", tt.first, tt.failures, got, tt.want)
			}
		})
	}
}
