package agent

import (
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// A supervisor that does not run any more is found out by the time that passes, whatever the
// node's clock is set to meanwhile.
func TestStatusIsFreshByTheAgentsOwnClock(t *testing.T) {
	start := time.Now()
	type read struct {
		after   time.Duration // since the start
		written time.Duration // likewise, by the node's clock; none is no status
		fresh   bool
	}
	const none = time.Duration(-1 << 62)
	tests := map[string][]read{
		"one that goes on": {{0, -time.Second, true}, {9 * time.Second, 9 * time.Second, true}, {40 * time.Second, 40 * time.Second, true}},
		"one that ends":    {{0, 0, true}, {30 * time.Second, 0, true}, {31 * time.Second, 0, false}},
		"one that ended, and the clock is set back":  {{0, time.Hour, true}, {31 * time.Second, time.Hour, false}},
		"one that goes on, and the clock is set on":  {{0, 0, true}, {9 * time.Second, time.Hour, true}, {18 * time.Second, time.Hour + 9*time.Second, true}},
		"one that goes on, and the clock was set on": {{0, -time.Hour, false}, {9 * time.Second, -time.Hour + 9*time.Second, true}},
		"one that had ended before":                  {{0, -31 * time.Second, false}, {time.Second, -31 * time.Second, false}},
		"one that begins":                            {{0, none, false}, {time.Second, time.Second, true}},
		"one that begins again":                      {{0, 0, true}, {time.Second, none, false}, {2 * time.Second, 2 * time.Second, true}},
	}
	for name, reads := range tests {
		t.Run(name, func(t *testing.T) {
			var status supervise.Status
			var err error
			a := &Agent{options: Options{
				Status: func() (supervise.Status, error) { return status, err },
				Log:    slog.New(slog.DiscardHandler),
			}}
			for _, r := range reads {
				status, err = supervise.Status{PID: 1, UpdatedAt: start.Add(r.written).Round(0)}, nil
				if r.written == none {
					status, err = supervise.Status{}, fs.ErrNotExist
				}
				a.readStatus(start.Add(r.after))
				if fresh := a.status.PID != 0; fresh != r.fresh {
					t.Errorf("after %s: fresh %v, want %v", r.after, fresh, r.fresh)
				}
			}
		})
	}
}
