package lanes_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func route(t testing.TB, s *lanes.Schedule, h lanes.Header) int {
	t.Helper()
	lane, err := s.Route(h, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return lane
}

func TestRequestsGoToTheShortestQueue(t *testing.T) {
	var s lanes.Schedule
	s.Add(1)
	s.Add(2)
	for xid, want := range []int{1, 2, 1, 2} {
		if got := route(t, &s, lanes.Header{XID: uint32(xid)}); got != want {
			t.Errorf("request %d went to lane %d, want %d", xid, got, want)
		}
	}
	waited, ok := s.Received(2, lanes.Header{XID: 1, Reply: true}, epoch.Add(time.Second))
	if !ok || waited != time.Second {
		t.Errorf("the answer came after %s, %v", waited, ok)
	}
	if got := route(t, &s, lanes.Header{XID: 9}); got != 2 {
		t.Errorf("a request went to lane %d, on which more wait", got)
	}
}

func TestRepliesReturnToTheLaneOfTheCall(t *testing.T) {
	var s lanes.Schedule
	s.Add(1)
	s.Add(2)
	s.Received(2, lanes.Header{XID: 77}, epoch)
	if lane, ok := s.Spare(); !ok || lane != 1 {
		t.Errorf("lane %d, %v, is spare; a call waits on lane 2", lane, ok)
	}
	if got := route(t, &s, lanes.Header{XID: 77, Reply: true}); got != 2 {
		t.Errorf("the reply went to lane %d", got)
	}
	if _, err := s.Route(lanes.Header{XID: 77, Reply: true}, epoch); err == nil {
		t.Error("a second reply was taken")
	}
}

func TestAnswersOfAnotherLaneCountForNothing(t *testing.T) {
	var s lanes.Schedule
	s.Add(1)
	s.Add(2)
	route(t, &s, lanes.Header{XID: 5})
	if _, ok := s.Received(2, lanes.Header{XID: 5, Reply: true}, epoch); ok || s.Waiting() != 1 {
		t.Error("the answer of a lane that was not asked was taken")
	}
}

func TestRequestsAreBounded(t *testing.T) {
	var s lanes.Schedule
	if _, err := s.Route(lanes.Header{}, epoch); err == nil {
		t.Error("a request went to no lane")
	}
	s.Add(1)
	for xid := range uint32(lanes.MaxRequests) {
		route(t, &s, lanes.Header{XID: xid})
	}
	if _, err := s.Route(lanes.Header{XID: lanes.MaxRequests}, epoch); !errors.Is(err, lanes.ErrFull) {
		t.Errorf("got %v", err)
	}
	if got := route(t, &s, lanes.Header{XID: 3}); got != 1 {
		t.Error("a request that is sent again is not on its lane")
	}
}

// TestScheduleAgainstAModel: every request is on one lane until its answer, every call of the server is answered
// where it came from, and lanes that are removed take only their own with them.
func TestScheduleAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s lanes.Schedule
		requests, calls, open, next := map[uint32]int{}, map[uint32]int{}, []int{}, 0
		waiting := func(lane int) (n int) {
			for _, of := range []map[uint32]int{requests, calls} {
				for _, l := range of {
					if l == lane {
						n++
					}
				}
			}
			return n
		}
		xids := rapid.Uint32Range(0, 20)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				if len(open) < 5 {
					next++
					s.Add(next)
					open = append(open, next)
				}
			},
			"remove": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "lane")
				lane := open[i]
				if got, want := s.Remove(lane), waiting(lane) > 0; got != want {
					t.Fatalf("lane %d was busy: %v, want %v", lane, got, want)
				}
				open = append(open[:i:i], open[i+1:]...)
				for _, of := range []map[uint32]int{requests, calls} {
					for xid, l := range of {
						if l == lane {
							delete(of, xid)
						}
					}
				}
			},
			"call": func(t *rapid.T) {
				xid := xids.Draw(t, "xid")
				lane, err := s.Route(lanes.Header{XID: xid}, epoch)
				before, sent := requests[xid]
				switch {
				case err != nil && len(open) > 0, err == nil && len(open) == 0 && !sent, sent && lane != before:
					t.Fatalf("request %d: lane %d, %v", xid, lane, err)
				case err != nil || sent:
					return
				}
				for _, other := range open {
					if waiting(other) < waiting(lane) {
						t.Fatalf("lane %d has a shorter queue than %d", other, lane)
					}
				}
				requests[xid] = lane
			},
			"from a lane": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				lane, h := rapid.SampledFrom(open).Draw(t, "lane"), lanes.Header{XID: xids.Draw(t, "xid"), Reply: rapid.Bool().Draw(t, "reply")}
				_, isAnswer := s.Received(lane, h, epoch)
				sent, ok := requests[h.XID]
				if want := h.Reply && ok && sent == lane; isAnswer != want {
					t.Fatalf("%+v of lane %d is an answer: %v, want %v", h, lane, isAnswer, want)
				}
				if isAnswer {
					delete(requests, h.XID)
				}
				if _, known := calls[h.XID]; !h.Reply && !known {
					calls[h.XID] = lane
				}
			},
			"reply": func(t *rapid.T) {
				xid := xids.Draw(t, "xid")
				lane, err := s.Route(lanes.Header{XID: xid, Reply: true}, epoch)
				from, ok := calls[xid]
				if (err == nil) != ok || ok && lane != from {
					t.Fatalf("the reply %d: lane %d, %v; want %d, %v", xid, lane, err, from, ok)
				}
				delete(calls, xid)
			},
			"": func(t *rapid.T) {
				if s.Waiting() != len(requests) || s.Len() != len(open) {
					t.Fatalf("%d wait on %d lanes, want %d on %d", s.Waiting(), s.Len(), len(requests), len(open))
				}
				if lane, ok := s.Spare(); ok && (waiting(lane) > 0 || len(open) < 2) {
					t.Fatalf("lane %d is not spare", lane)
				}
			},
		})
	})
}
