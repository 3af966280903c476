package efsapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/google/go-cmp/cmp"
)

func TestFaultsApplyToTheCallsTheyName(t *testing.T) {
	throttled, failed := result{"ThrottlingException", 400}, result{"InternalServerError", 500}
	denied := result{"AccessDeniedException", 403}
	var fine result
	tests := map[string]struct {
		faults []Fault
		want   []result // of successive calls
	}{
		"next two":          {[]Fault{{Kind: Throttle, Next: 2}}, []result{throttled, throttled, fine}},
		"every third":       {[]Fault{{Kind: Throttle, Rate: 1.0 / 3}}, []result{fine, fine, throttled, fine, fine, throttled}},
		"always":            {[]Fault{{Kind: AccessDenied}}, []result{denied, denied, denied}},
		"one after another": {[]Fault{{Kind: ServerError, Next: 1}, {Kind: Throttle, Next: 1}}, []result{failed, throttled, fine}},
		"other operation":   {[]Fault{{Kind: ServerError, Operation: DescribeMountTargets}}, []result{fine, fine}},
		"replaced":          {[]Fault{{Kind: ServerError, Next: 9}, {Kind: ServerError, Next: 1}}, []result{failed, fine}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for _, f := range tt.faults {
				if err := b.faults.Set(f); err != nil {
					t.Fatal(err)
				}
			}
			var got []result
			for range tt.want {
				_, err := b.client().DescribeFileSystems(t.Context(), nil)
				got = append(got, resultOf(err))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			b.faults.Clear()
			if _, err := b.client().DescribeFileSystems(t.Context(), nil); err != nil {
				t.Errorf("after clear: %v", err)
			}
		})
	}
}

func TestEmptyFaultIsASuccessWithoutResources(t *testing.T) {
	b := newBench(t)
	if err := b.faults.Set(Fault{Kind: Empty}); err != nil {
		t.Fatal(err)
	}
	answer, err := b.client().DescribeFileSystems(t.Context(), nil)
	if err != nil || len(answer.FileSystems) != 0 {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestHangingCallEndsWhenTheClientCancels(t *testing.T) {
	b := newBench(t)
	if err := b.faults.Set(Fault{Kind: Hang, Next: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithTimeout(t.Context(), time.Minute)
	defer giveUp()
	go func() {
		for tick := time.Tick(time.Millisecond); ctx.Err() == nil && len(b.faults.List()) > 0; {
			<-tick
		}
		giveUp() // the call has arrived and hangs
	}()
	if _, err := b.client().DescribeFileSystems(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the client's own cancellation", err)
	}
	want := map[string]map[string]int{DescribeFileSystems: {"Hung": 1}}
	poll, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for tick := time.Tick(time.Millisecond); poll.Err() == nil && !cmp.Equal(want, b.counters.Snapshot()); {
		<-tick
	}
	if diff := cmp.Diff(want, b.counters.Snapshot()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestCallsAreCountedByOperationAndResult(t *testing.T) {
	b := newBench(t)
	if err := b.faults.Set(Fault{Kind: Throttle, Next: 1}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, _ = b.client().DescribeFileSystems(t.Context(), nil)
	}
	_, _ = b.client().DescribeAccessPoints(t.Context(), nil)
	want := map[string]map[string]int{
		DescribeFileSystems:  {"ThrottlingException": 1, "OK": 2},
		DescribeAccessPoints: {"OK": 1},
	}
	if diff := cmp.Diff(want, b.counters.Snapshot()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestSDKRetriesThrottledCalls(t *testing.T) {
	b := newBench(t)
	if err := b.faults.Set(Fault{Kind: Throttle, Next: 1}); err != nil {
		t.Fatal(err)
	}
	client := b.client(func(o *efs.Options) { o.Retryer = retry.NewStandard() })
	if _, err := client.DescribeFileSystems(t.Context(), nil); err != nil {
		t.Errorf("got %v, want success at the second try", err)
	}
}

func TestInvalidFaultsAreRefused(t *testing.T) {
	tests := map[string]struct {
		fault Fault
		want  string
	}{
		"unknown kind":      {Fault{Kind: "flood"}, `kind "flood": want one of throttle, `},
		"unknown operation": {Fault{Kind: Throttle, Operation: "DescribeAll"}, `operation "DescribeAll": want one of DescribeFileSystems, `},
		"no size":           {Fault{Kind: PageSize}, "page size 0: want at least 1"},
		"size of a delay":   {Fault{Kind: Hang, Size: 1}, "size 1: only page-size has a size"},
		"rate above one":    {Fault{Kind: Throttle, Rate: 1.5}, "rate 1.5: want a fraction from 0 to 1"},
		"two limits":        {Fault{Kind: Throttle, Rate: 0.5, Next: 1}, "next 1 and rate 0.5: want one of them"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := new(Faults).Set(tt.fault); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
