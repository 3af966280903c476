package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTargetMark(t *testing.T) {
	tests := map[string]struct {
		target target
		n      float64
		want   string
	}{
		"no target":          {target{}, 1, ""},
		"fast enough":        {target{150, atLeast}, 150, "met"},
		"too slow":           {target{150, atLeast}, 149, "**missed**"},
		"little enough":      {target{3, atMost}, 3, "met"},
		"too much":           {target{3, atMost}, 3.01, "**missed**"},
		"nothing is allowed": {target{0, atMost}, 1, "**missed**"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.target.mark(tt.n); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	tests := map[string]struct {
		row  row
		want string
	}{
		"more is better":     {row{ours: 100, peer: 50, unit: perSecond}, "2×"},
		"less is better":     {row{ours: 2, peer: 3, unit: "writes"}, "1.5×"},
		"nothing to compare": {row{ours: 2, unit: "writes"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.row.ratio(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPhase(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	times := []claimTimes{
		{created: at(1), volume: at(3), bound: at(5)},
		{created: at(0), volume: at(4), bound: at(4)},
	}
	p := newPhase(times, func(s claimTimes) (from, handover, to time.Time) { return s.created, s.volume, s.bound }, requests{"GET": 1, "POST": 4, "PATCH": 2})
	if p.Seconds != 5 || p.Rate != 0.4 || p.Handover != 4 || p.P99 != 4 || p.Writes != 3 || p.Reads != 0.5 {
		t.Errorf("got %+v", p)
	}
}

// TestMediansKeepContendersApart: a row of the table is about one contender with one choice of
// settings, in the order in which they were first measured.
func TestMediansKeepContendersApart(t *testing.T) {
	var r results
	for _, rate := range []float64{10, 30, 20} {
		r.Bursts = append(r.Bursts,
			burst{Contender: libraryName, Limits: raisedLimits(), Workers: 4, Create: phase{Rate: rate}},
			burst{Contender: managerName, Limits: raisedLimits(), Create: phase{Rate: 10 * rate}, Delete: phase{Rate: 1000 - rate}},
			burst{Contender: libraryName, Limits: raisedLimits(), Workers: 32, Create: phase{Rate: 2 * rate}},
		)
	}
	library, ours := r.medians(libraryName), r.medians(managerName)
	if len(library) != 2 || library[0].Create.Rate != 20 || library[1].Create.Rate != 40 {
		t.Errorf("the library has %+v", library)
	}
	if len(ours) != 1 || ours[0].Create.Rate != 200 || ours[0].Delete.Rate != 980 {
		t.Errorf("the manager has %+v", ours)
	}
}

// TestBurstTargets are relative to the binder and to the library of the same run. Of a burst that waits for a
// pod, only the time from its first volume on is compared with the binder.
func TestBurstTargets(t *testing.T) {
	r := results{
		Ceilings: []ceiling{{Bind: phase{Rate: 100}}},
		Bursts: []burst{
			{Contender: managerName, Limits: raisedLimits(), Workers: 32, Create: phase{Rate: 80, FromVolume: 96, Handover: 7.4}, Delete: phase{Rate: 57}},
			{Contender: managerName, Limits: raisedLimits(), Workers: 32, Warm: true, Create: phase{Rate: 94, FromVolume: 99, Handover: 7.6}, Delete: phase{Rate: 56}},
			{Contender: libraryName, Limits: raisedLimits(), Workers: 32, Create: phase{Handover: 5}, Delete: phase{Rate: 90}},
			{Contender: libraryName, Limits: raisedLimits(), Workers: 32, Finalizer: true, Delete: phase{Rate: 60}},
			{Contender: libraryName, Limits: raisedLimits(), Workers: 4, Create: phase{Handover: 9}},
		},
	}
	var marks []string
	for _, row := range r.burstRows() {
		if mark := row.target.mark(row.ours); mark != "" {
			marks = append(marks, fmt.Sprintf("%g %s %s", row.ours, row.target, mark))
		}
	}
	want := []string{"96 ≥ 95 met", "0 ≤ 3 met", "0 ≤ 3 met", "7.4 ≤ 7.5 met", "57 ≥ 57 met", "94 ≥ 95 **missed**"}
	if !slices.Equal(marks, want) {
		t.Errorf("got %q, want %q", marks, want)
	}
}

// TestWarmAndColdClaimsHaveRows: each is compared with the library.
func TestWarmAndColdClaimsHaveRows(t *testing.T) {
	r := results{Alone: []alone{
		{Contender: managerName, Beyond: spread{Median: 90}},
		{Contender: managerName, Warm: true, Bound: spread{Median: 101}, Deleted: spread{Median: 150}},
		{Contender: libraryName, Beyond: spread{Median: 30}, Bound: spread{Median: 20}},
	}}
	var rows []string
	for _, row := range r.aloneRows() {
		if mark := row.target.mark(row.ours); mark != "" {
			rows = append(rows, fmt.Sprintf("%g %s %s, library %g", row.ours, row.target, mark, row.peer))
		}
	}
	want := []string{"90 ≤ 300 met, library 30", "101 ≤ 100 **missed**, library 20", "150 ≤ 150 met, library 0"}
	if !slices.Equal(rows, want) {
		t.Errorf("got %q, want %q", rows, want)
	}
}

// TestJobsOfAPhaseHaveItsBatches: a worker that still waits was created in the phase before.
func TestJobsOfAPhaseHaveItsBatches(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before, after := begin.Add(-time.Second), begin.Add(time.Second)
	bed := &testbed{observer: &observer{jobs: map[string]*jobTimes{
		"over":   {created: before, ended: before, batches: []batchTimes{{1, 7, before}}},
		"worker": {created: before, batches: []batchTimes{{1, 5, before}, {2, 3, after}, {3, 4, after}}},
	}}}
	jobs := bed.jobsSince(begin)
	want := []job{{Operations: 7, Created: -1, Batches: []jobBatch{{2, 3, 1}, {3, 4, 1}}}}
	if !reflect.DeepEqual(jobs, want) {
		t.Errorf("got %+v, want %+v", jobs, want)
	}
	if n := bed.ranAfter(begin); n != 1 {
		t.Errorf("%d Jobs ran, want the worker's", n)
	}
}

func TestTable(t *testing.T) {
	r := results{Idle: &idle{Volumes: 10000, Memory: memory{Now: 130, Peak: 150}, Start: spread{Median: 2}}}
	var text strings.Builder
	if err := r.writeTable(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 10000 bound volumes: resident memory | 130 | MiB | ≤ 120 | **missed** |  |  |",
		"| … start to leading and synced | 2.00 | s | ≤ 5 | met |  |  |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no line %q in\n%s", want, text.String())
		}
	}
}

func TestCeilingIsTheMedianRound(t *testing.T) {
	r := results{Ceilings: []ceiling{{Bind: phase{Rate: 120}}, {Bind: phase{Rate: 90}}, {Bind: phase{Rate: 95.5}}}}
	if got := r.ceilingLine(); !strings.Contains(got, "95.5 claims/s") {
		t.Errorf("got %q", got)
	}
	if got := (results{}).ceilingLine(); got != "" {
		t.Errorf("got %q without any", got)
	}
}

// TestShippedLimits reads the manifest that is shipped.
func TestShippedLimits(t *testing.T) {
	limit, environment, err := shippedLimits("../../deploy/kustomize/base/manager.yaml")
	if err != nil || limit < 64 {
		t.Errorf("%g MiB, %q, %v", limit, environment, err)
	}
}

func TestScaleRowsHaveTheSameCaseOfTheLibrary(t *testing.T) {
	r := results{Scales: []scale{
		{Contender: managerName, Case: caseShared, Memory: memory{Peak: 100}, Limit: 90},
		{Contender: libraryName, Case: caseMass, Memory: memory{Peak: 300}},
		{Contender: libraryName, Case: caseShared, Memory: memory{Peak: 200}},
	}}
	rows := r.scaleRows()
	if len(rows) != 3 || rows[0].peer != 200 || rows[0].target.mark(rows[0].ours) != "**missed**" {
		t.Errorf("rows %+v", rows)
	}
}

func TestBindingIsComparedWithTheLibrary(t *testing.T) {
	r := results{Bindings: []burst{
		{Contender: managerName, Create: phase{Rate: 4}},
		{Contender: managerName, Finishes: true, Create: phase{Rate: 9}},
		{Contender: managerName, Finishes: true, Annotated: true, Create: phase{Rate: 21}},
		{Contender: libraryName, Create: phase{Rate: 4}},
	}}
	var got []string
	for _, row := range r.bindingRows() {
		if row.unit == perSecond && row.ours > 0 {
			got = append(got, row.target.mark(row.ours)+row.ratio())
		}
	}
	if want := []string{"1×", "**missed**2.2×", "met5.2×"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
