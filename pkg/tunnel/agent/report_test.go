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

// TestHealthIsReportedWhenItChanges wants events for a tunnel's first failure, for denied access also
// after another failure, and for its recovery after healthyAfter.
func TestHealthIsReportedWhenItChanges(t *testing.T) {
	events := record.NewFakeRecorder(100)
	a := &Agent{options: Options{Events: events, Log: slog.New(slog.DiscardHandler)}}
	state, now := &tunnelState{}, time.Now()
	for _, step := range []struct {
		err   error
		after time.Duration
		want  string // "" for no event
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
		got := ""
		select {
		case got = <-events.Events:
		default:
		}
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("after %v: got event %q, want %q", step.err, got, step.want)
		}
	}
}
