package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/events"
	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestHealthIsReportedWhenItChanges wants events for a tunnel's first failure, for denied access also
// after another failure, and for its recovery after healthyAfter.
func TestHealthIsReportedWhenItChanges(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	a := &Agent{options: Options{Events: recorder, Log: slog.New(slog.DiscardHandler)}}
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
		case got = <-recorder.Events:
		default:
		}
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("after %v: got event %q, want %q", step.err, got, step.want)
		}
	}
}

// TestEndOfAProblemIsReported once it was not found for a while, and the problem anew when it comes back.
func TestEndOfAProblemIsReported(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	a := &Agent{
		options: Options{Events: recorder, Log: slog.New(slog.DiscardHandler)}, events: events.NewReporter(recorder),
		metrics: newMetrics(nil), problems: map[problem]reported{},
	}
	now := time.Now()
	const (
		unusable = "Warning TargetUnusable target fs-1 cannot be served (Reason): why map[" + wellknown.AnnotationTunnel + ":fs-1]"
		ended    = "Normal ProblemEnded TargetUnusable of tunnel \"fs-1\" has ended map[" +
			wellknown.AnnotationProblem + ":TargetUnusable " + wellknown.AnnotationTunnel + ":fs-1]"
		missing = "Warning TableMissing ConfigMap efs-stunnel is gone; what it last said is served on"
	)
	broken := []routing.UnusableTarget{{Name: "fs-1", Reason: "Reason", Message: "why"}}
	for i, step := range []struct {
		after    time.Duration
		unusable []routing.UnusableTarget
		deleted  bool
		want     []string
	}{
		{0, broken, false, []string{unusable}},
		{time.Second, broken, false, nil},
		{time.Second, nil, false, nil},
		{time.Second, broken, true, []string{missing}},
		{healthyAfter - time.Second, nil, true, nil},
		{time.Second, nil, true, []string{ended}},
		{time.Second, broken, false, []string{unusable}},
		{healthyAfter, broken, false, []string{"Normal ProblemEnded TableMissing has ended map[" + wellknown.AnnotationProblem + ":TableMissing]"}},
	} {
		now = now.Add(step.after)
		a.plan.Unusable, a.hasTable, a.problem.deleted = step.unusable, true, step.deleted
		a.report(now)
		var got []string
		for range len(recorder.Events) {
			got = append(got, <-recorder.Events)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}
