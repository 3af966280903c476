package status_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func unhealthy(message string) status.Condition {
	return status.Condition{
		Subject: status.Subject{Kind: status.Tunnel, Name: "fs-1"}, Reason: wellknown.EventTunnelUnhealthy, Message: message,
	}
}

func detailed(detail, message string) status.Condition {
	c := unhealthy(message)
	c.Detail = detail
	return c
}

func since(c status.Condition, at time.Time) status.Condition {
	c.Since = at
	return c
}

func update(t *testing.T, s *status.Set, now time.Time, want status.Changes, found ...status.Condition) {
	t.Helper()
	if diff := cmp.Diff(want, s.Update(now, found)); diff != "" {
		t.Errorf("changes mismatch at %s (-want +got):\n%s", now.Sub(start), diff)
	}
}

type list = []status.Condition

func TestConditionBeginsChangesAndEnds(t *testing.T) {
	var s status.Set
	first, second := unhealthy("a"), unhealthy("b")
	update(t, &s, start, status.Changes{Began: list{since(first, start)}}, first)
	update(t, &s, start.Add(1), status.Changes{}, first)
	update(t, &s, start.Add(2), status.Changes{Changed: list{since(second, start)}}, second)
	if diff := cmp.Diff(list{since(second, start)}, s.Conditions()); diff != "" {
		t.Errorf("conditions mismatch (-want +got):\n%s", diff)
	}
	update(t, &s, start.Add(3), status.Changes{Ended: list{since(second, start)}})
	if got := s.Conditions(); got != nil {
		t.Errorf("got %v after the end", got)
	}
	update(t, &s, start.Add(4), status.Changes{Began: list{since(first, start.Add(4))}}, first)
	update(t, &s, start.Add(4), status.Changes{Ended: list{since(first, start.Add(4))}}) // at the same time
}

// TestAnotherCauseIsAChange keeps the time at which the condition began.
func TestAnotherCauseIsAChange(t *testing.T) {
	var s status.Set
	c := unhealthy("a")
	s.Update(start, list{c})
	c.Cause.Reason = "Timeout"
	update(t, &s, start.Add(1), status.Changes{Changed: list{since(c, start)}}, c)
}

func TestDetailKeepsTheFirstMessage(t *testing.T) {
	var s status.Set
	s.Update(start, list{detailed("throttled", "request 1")})
	update(t, &s, start.Add(1), status.Changes{}, detailed("throttled", "request 2"))
	if got := s.Conditions(); len(got) != 1 || got[0].Message != "request 1" {
		t.Errorf("got %v", got)
	}
}

// TestEndNeedsAllOfAReason: a subject has a problem until none with that reason is left.
func TestEndNeedsAllOfAReason(t *testing.T) {
	var s status.Set
	a, b := detailed("a", "a"), detailed("b", "b")
	s.Update(start, list{a, b})
	update(t, &s, start.Add(1), status.Changes{}, b)
	update(t, &s, start.Add(2), status.Changes{Ended: list{since(b, start)}})
}

func TestConditionLingers(t *testing.T) {
	s := status.Set{Linger: time.Minute}
	c := unhealthy("a")
	s.Update(start, list{c})
	update(t, &s, start.Add(59*time.Second), status.Changes{})
	update(t, &s, start.Add(59*time.Second), status.Changes{}, c)
	update(t, &s, start.Add(100*time.Second), status.Changes{})
	update(t, &s, start.Add(2*time.Minute), status.Changes{Ended: list{since(c, start)}})
}

// TestChangesAreSorted: equal inputs give equal events.
func TestChangesAreSorted(t *testing.T) {
	var s status.Set
	node := status.Condition{Subject: status.Subject{Kind: status.Node, Name: "n"}, Reason: wellknown.EventTableMissing}
	tunnel := unhealthy("a")
	want := status.Changes{Began: list{since(node, start), since(tunnel, start)}}
	update(t, &s, start, want, tunnel, node)
}

// TestEachReasonHasATypeAndARemedy: without them, no object and no tool shows the condition.
func TestEachReasonHasATypeAndARemedy(t *testing.T) {
	types := map[string]bool{"": true}
	for _, kind := range []status.Kind{status.FileSystem, status.Node, status.Installation} {
		for _, name := range status.TypesOf(kind) {
			types[name] = true
		}
	}
	for _, reason := range status.Reasons() {
		c := status.Condition{Reason: reason}
		if c.TypeOf() == "" || !types[c.TypeOf()] || status.Remedy(reason) == "" || status.EndedEvent(reason) == "" {
			t.Errorf("%s has type %q, remedy %q", reason, c.TypeOf(), status.Remedy(reason))
		}
	}
}

func TestUnreadableTableOfAgentIsItsOwn(t *testing.T) {
	c := status.Condition{Subject: status.Subject{Kind: status.Node}, Reason: wellknown.EventTableUnreadable}
	if c.TypeOf() != status.TableServed {
		t.Errorf("got %s", c.TypeOf())
	}
	if c.Subject.Kind = status.Installation; c.TypeOf() != status.TableStored {
		t.Errorf("got %s", c.TypeOf())
	}
}
