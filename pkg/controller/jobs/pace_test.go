package jobs

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	tests := map[string]struct {
		costs []time.Duration
		want  time.Duration
	}{
		"never looked":          {nil, lookDelay},
		"a cheap look":          {[]time.Duration{100 * time.Microsecond}, lookDelay},
		"a look that costs":     {[]time.Duration{10 * time.Millisecond}, 200 * time.Millisecond},
		"one that costs more":   {[]time.Duration{50 * time.Millisecond}, time.Second},
		"one that was kept off": {[]time.Duration{time.Minute}, 2 * time.Second},
		"only the last matters": {[]time.Duration{time.Minute, 2 * time.Millisecond}, 40 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPace()
			p.took("fs-2", time.Hour)
			for _, cost := range tt.costs {
				p.took("fs-1", cost)
			}
			if got := p.rest("fs-1"); got != tt.want {
				t.Errorf("the rest is %s, want %s", got, tt.want)
			}
		})
	}
}
