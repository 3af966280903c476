package operations

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestDecodeReportReturnsWhatWasEncoded(t *testing.T) {
	blocker := owner("c2", "ns", 7)
	tests := map[string][]Result{
		"none":     {},
		"all done": {{State: Done}, {State: Done}},
		"every kind": {
			{State: Done},
			{State: Failed, Reason: Nested, Message: "say <what> to do", Owners: []Owner{blocker}},
			{State: Blocked, Reason: StillOwned, Owners: []Owner{blocker, owner("c1", "x", 1)}},
			{State: NotDone, Reason: Stopped},
			{State: Done, GID: 2000},
			{State: Done, GID: 2001},
			{State: Done, GID: 2000},
			{State: Done, Reason: NotMade, Message: "it stays"},
			{State: Done, GID: 2002},
			{State: NotDone, Reason: Stopped},
		},
	}
	for name, results := range tests {
		t.Run(name, func(t *testing.T) {
			message := Report{Results: results}.Encode()
			got, err := DecodeReport(message, len(results))
			if err != nil {
				t.Fatalf("%v in %s", err, message)
			}
			if !reflect.DeepEqual(got.Results, results) {
				t.Errorf("got  %+v\nwant %+v\nfrom %s", got.Results, results, message)
			}
		})
	}
}

// TestSettled: what is refused everywhere is no failure of a Job.
func TestSettled(t *testing.T) {
	for name, tt := range map[string]struct {
		result Result
		want   bool
	}{
		"done":               {Result{State: Done}, true},
		"done, stays":        {Result{State: Done, Reason: StillOwned}, true},
		"blocked":            {Result{State: Blocked, Reason: StillOwned}, true},
		"refused":            {Result{State: Failed, Reason: Nested}, true},
		"no space":           {Result{State: Failed, Reason: NoSpace}, false},
		"the server is gone": {Result{State: Failed, Reason: IOError}, false},
		"stopped":            {Result{State: NotDone, Reason: Stopped}, false},
		"unknown":            {Result{}, false},
	} {
		if got := (Report{Results: []Result{{State: Done}, tt.result}}).Settled(); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Whatever the results of a full batch are, the termination message is valid and short enough, and each result
// in it is true. The leader gets them all.
func TestReportIsBoundedAndTrue(t *testing.T) {
	long, name := strings.Repeat("<é\x00\"", 1000), strings.Repeat("<é>", 1000)
	someone := func(i int) []Owner {
		return []Owner{{Volume: fmt.Sprintf("%d%s", i, name), Cluster: name, Namespace: name, Claim: name, ClaimUID: name}}
	}
	tests := map[string]struct {
		result func(i int) Result
		listed int // at least so many operations must not be Unknown in the termination message
	}{
		"all done":           {func(int) Result { return Result{State: Done} }, 512},
		"gids in a row":      {func(i int) Result { return Result{State: Done, GID: 2000 + i} }, 512},
		"gids without order": {func(i int) Result { return Result{State: Done, GID: 2000 + i*7919%100_000} }, 512},
		"gids from anywhere": {func(i int) Result { return Result{State: Done, GID: 1 + i*1_000_000_007%MaxID} }, 256},
		"gids beside what failed": {func(i int) Result {
			if i%2 == 0 {
				return Result{State: Done, GID: 2000 + i*7919%512}
			}
			return Result{State: Failed, Reason: NoSpace, Message: long}
		}, 512},
		"one message for all":   {func(int) Result { return Result{State: Failed, Reason: NoSpace, Message: long} }, 512},
		"a message for each":    {func(i int) Result { return Result{State: Failed, Reason: NoSpace, Message: fmt.Sprint(i, long)} }, 3},
		"an owner for each":     {func(i int) Result { return Result{State: Failed, Reason: Nested, Owners: someone(i)} }, 1},
		"a blocker for each":    {func(i int) Result { return Result{State: Blocked, Reason: StillOwned, Owners: someone(i)} }, 1},
		"stopped in the middle": {func(i int) Result { return Result{State: []State{Done, NotDone}[i/256]} }, 512},
		"every other one blocked": {func(i int) Result {
			if i%2 == 0 {
				return Result{State: Done}
			}
			return Result{State: Blocked, Owners: someone(i)}
		}, 256},
		"unknown": {func(int) Result { return Result{} }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			report := Report{}
			for i := range 512 {
				report.Results = append(report.Results, tt.result(i))
			}
			for limit, listed := range map[int]int{wellknown.MaxTerminationMessageBytes: tt.listed, MaxReportBytes: min(tt.listed*512, 100)} {
				message := report.fit(limit)
				if len(message) > limit || !json.Valid(message) {
					t.Fatalf("%d bytes: %.4096s", len(message), message)
				}
				if found := countTrue(t, report, message); found < listed {
					t.Errorf("%d operations are known in %d bytes, want %d: %.4096s", found, limit, listed, message)
				}
			}
		})
	}
}

// countTrue counts the results of a message, which have to be those of the report.
func countTrue(t *testing.T, report Report, message []byte) (listed int) {
	t.Helper()
	got, err := DecodeReport(message, len(report.Results))
	if err != nil {
		t.Fatalf("%v in %.4096s", err, message)
	}
	for i, result := range got.Results {
		want := report.Results[i]
		if result.State == Unknown {
			continue
		}
		listed++
		if result.State != want.State || result.Reason != want.Reason || result.GID != want.GID {
			t.Fatalf("operation %d: got %+v, want %+v", i, result, want)
		}
		if want.State == Blocked && len(result.Owners) == 0 {
			t.Fatalf("operation %d is blocked, and no owner is listed", i)
		}
	}
	return listed
}

// TestLeaderGetsTheWholeReport: each claim's own cause is known, however many claims failed.
func TestLeaderGetsTheWholeReport(t *testing.T) {
	report := Report{Batch: 2}
	for i := range 512 {
		report.Results = append(report.Results, Result{State: Failed, Reason: Nested, Message: fmt.Sprintf("volume %d has the directory", i), Owners: []Owner{owner("c1", "ns", i)}})
	}
	got, err := DecodeReport(report.Encode(), 512)
	if err != nil || !reflect.DeepEqual(got, report) {
		t.Errorf("error %v, %d results", err, len(got.Results))
	}
}

func TestDecodeReportRefuses(t *testing.T) {
	for name, message := range map[string]string{
		"nothing":                 "",
		"words":                   "OOMKilled",
		"half":                    `{"operations":[0,0,-1],"results":[{"state":"failed"`,
		"another batch's":         `{"operations":[0,0,0,0]}`,
		"no operations":           `{"results":[{"state":"done"}]}`,
		"a number of them":        `{"operations":3}`,
		"a result that is not":    `{"operations":[0,0,-2],"results":[{"state":"done"}]}`,
		"a result far away":       `{"operations":[0,0,-9223372036854775808],"results":[{"state":"done"}]}`,
		"an unknown state":        `{"operations":[0,0,-1],"results":[{"state":"finished"}]}`,
		"a gid above the highest": `{"operations":[0,0,2147483648]}`,
		"one beside a reason":     `{"operations":[0,0,-1],"results":[{"state":"done","gid":2147483648}]}`,
		"a gid below zero":        `{"operations":[0,0,-1],"results":[{"state":"done","gid":-1}]}`,
		"something after it":      `{"operations":[0,0,0]}{"operations":[0,0,0]}`,
		"too long":                `{"operations":[0,0,0]}` + strings.Repeat(" ", MaxReportBytes),
	} {
		t.Run(name, func(t *testing.T) {
			report, err := DecodeReport([]byte(message), 3)
			if err == nil {
				t.Errorf("no error, but %+v", report)
			}
			if len(report.Results) != 3 || slices.ContainsFunc(report.Results, func(r Result) bool { return r.State != Unknown }) {
				t.Errorf("got %+v", report.Results)
			}
		})
	}
}

func TestRefusedReport(t *testing.T) {
	want := Result{State: NotDone, Reason: WrongFileSystem, Message: "another one"}
	refused := RefusedReport(2, Result{State: Failed, Reason: WrongFileSystem, Message: "another one"})
	got, err := DecodeReport(refused.Encode(), 2)
	if err != nil || refused.Succeeded() || !reflect.DeepEqual(got.Results, []Result{want, want}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A report that was cut or made up never panics, and says done only of what it lists as done.
func FuzzDecodeReport(f *testing.F) {
	whole := Report{Results: []Result{{State: Done}, {State: Failed, Reason: NoSpace, Message: "full"}, {State: Done, GID: 7}, {}}}.Encode()
	for cut := range whole {
		f.Add(whole[:cut], 4)
	}
	f.Add(whole, 4)
	f.Add([]byte(`{"operations":[0,-1],"results":[{"state":"done","reason":"Retained"}]}`), 2)
	f.Add([]byte(`{"operations":[]}`), -1)
	f.Fuzz(func(t *testing.T, message []byte, operations int) {
		operations = min(operations, 1<<12)
		report, err := DecodeReport(message, operations)
		if len(report.Results) != max(operations, 0) {
			t.Fatalf("%d results of %d operations", len(report.Results), operations)
		}
		for i, result := range report.Results {
			if result.State != Unknown && err != nil {
				t.Fatalf("operation %d is %s by %q", i, result.State, message)
			}
		}
		if err == nil && len(report.TerminationMessage()) > wellknown.MaxTerminationMessageBytes {
			t.Error("the report, encoded again, is too long")
		}
	})
}
