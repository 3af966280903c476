package agent

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
)

// TestHealthIsToldWhenItChanges has a tunnel's first failure told, that it is refused whenever that
// is found out, and its recovery after a while.
func TestHealthIsToldWhenItChanges(t *testing.T) {
	events := record.NewFakeRecorder(100)
	a := &Agent{options: Options{Events: events, Log: slog.New(slog.DiscardHandler)}}
	state, now := &tunnelState{}, time.Now()
	for _, step := range []struct {
		err   error
		after time.Duration
		told  string // "" is nothing
	}{
		{context.DeadlineExceeded, 0, "(Timeout)"},
		{context.DeadlineExceeded, 0, ""},
		{probe.ErrDenied, 0, "(Denied)"},
		{context.DeadlineExceeded, 0, ""},
		{probe.ErrDenied, 0, ""},
		{nil, 0, ""},
		{nil, healthyAfter, "healthy again"},
		{probe.ErrDenied, 0, "(Denied)"},
		{context.DeadlineExceeded, 0, ""},
	} {
		now = now.Add(step.after)
		state.result = &probe.Result{Err: step.err, At: now}
		a.reportHealth(state)
		told := ""
		select {
		case told = <-events.Events:
		default:
		}
		if (told == "") != (step.told == "") || !strings.Contains(told, step.told) {
			t.Errorf("after %v it tells %q, want %q", step.err, told, step.told)
		}
	}
}
