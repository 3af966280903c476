package operations

import (
	"encoding/json"
	"fmt"
	"reflect"
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

// Whatever the results of a full batch are, the report is valid and short enough, and each result in
// it is true.
func TestEncodedReportIsBoundedAndTrue(t *testing.T) {
	long := strings.Repeat("<é\x00\"", 1000)
	someone := func(i int) []Owner {
		return []Owner{{Volume: fmt.Sprintf("%d%s", i, long), Cluster: long, Namespace: long, Claim: long, ClaimUID: long}}
	}
	tests := map[string]struct {
		result   func(i int) Result
		complete bool
		listed   int // at least so many operations must not be Unknown
	}{
		"gids in a row":      {func(i int) Result { return Result{State: Done, GID: 2000 + i} }, true, 512},
		"one gid for all":    {func(int) Result { return Result{State: Done, GID: 2000} }, true, 512},
		"gids without order": {func(i int) Result { return Result{State: Done, GID: 2000 + i*7919%512} }, true, 512},
		"gids of directories from before, from anywhere": {func(i int) Result { return Result{State: Done, GID: 1 + i*1_000_000_007%MaxID} }, false, 256},
		"gids beside what failed": {func(i int) Result {
			if i%2 == 0 {
				return Result{State: Done, GID: 2000 + i*7919%512}
			}
			return Result{State: Failed, Reason: NoSpace, Message: long}
		}, true, 512},
		"one message for all":   {func(int) Result { return Result{State: Failed, Reason: NoSpace, Message: long} }, true, 512},
		"a message for each":    {func(i int) Result { return Result{State: Failed, Reason: NoSpace, Message: fmt.Sprint(i, long)} }, true, 512},
		"an owner for each":     {func(i int) Result { return Result{State: Failed, Reason: Nested, Owners: someone(i)} }, true, 512},
		"a blocker for each":    {func(i int) Result { return Result{State: Blocked, Reason: StillOwned, Owners: someone(i)} }, false, 1},
		"stopped in the middle": {func(i int) Result { return Result{State: []State{Done, NotDone}[i/256], Message: ""} }, true, 512},
		"every other one": {func(i int) Result {
			return Result{State: []State{Done, Failed}[i%2], Reason: Reason([]string{"", "NoSpace"}[i%2])}
		}, true, 512},
		"every other one blocked": {func(i int) Result {
			if i%2 == 0 {
				return Result{State: Done}
			}
			return Result{State: Blocked, Owners: someone(i)}
		}, false, 256},
		"unknown": {func(int) Result { return Result{} }, false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			report := Report{}
			for i := range 512 {
				report.Results = append(report.Results, tt.result(i))
			}
			message := report.Encode()
			if len(message) > wellknown.MaxTerminationMessageBytes || !json.Valid(message) {
				t.Fatalf("%d bytes: %s", len(message), message)
			}
			if complete := strings.Contains(string(message), `"complete":true`); complete != tt.complete {
				t.Errorf("complete is %v: %s", complete, message)
			}
			got, err := DecodeReport(message, 512)
			if err != nil {
				t.Fatalf("%v in %s", err, message)
			}
			listed := 0
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
			if listed < tt.listed {
				t.Errorf("%d operations are known, want %d: %s", listed, tt.listed, message)
			}
		})
	}
}

func TestDecodeReportRefuses(t *testing.T) {
	for name, message := range map[string]string{
		"nothing":                    "",
		"words":                      "OOMKilled",
		"half":                       `{"operations":3,"complete":true,"results":[{"ops":"0"`,
		"another batch's":            `{"operations":4,"complete":true}`,
		"no number":                  `{"complete":true}`,
		"an operation too many":      `{"operations":3,"complete":true,"results":[{"ops":"3","state":"failed"}]}`,
		"a range without end":        `{"operations":3,"complete":true,"results":[{"ops":"0-999999999999","state":"done"}]}`,
		"a long range":               `{"operations":3,"complete":true,"results":[{"ops":"0-65535","state":"done"}]}`,
		"a negative one":             `{"operations":3,"complete":true,"results":[{"ops":"-1","state":"done"}]}`,
		"no operations":              `{"operations":3,"complete":true,"results":[{"ops":"","state":"failed"}]}`,
		"one operation twice":        `{"operations":3,"complete":true,"results":[{"ops":"1","state":"done"},{"ops":"0-2","state":"failed"}]}`,
		"one operation twice nearby": `{"operations":3,"complete":true,"results":[{"ops":"1,1","state":"done"}]}`,
		"no state":                   `{"operations":3,"complete":true,"results":[{"ops":"1"}]}`,
		"an unknown state":           `{"operations":3,"complete":true,"results":[{"ops":"1","state":"finished"}]}`,
		"a gid above the highest":    `{"operations":3,"complete":true,"results":[{"ops":"1","state":"done","gid":2147483648}]}`,
		"gids that step beyond it":   `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"done","gid":2147483647,"step":1}]}`,
		"a step back":                `{"operations":3,"complete":true,"results":[{"ops":"1","state":"done","gid":9,"step":-1}]}`,
		"an operation of no batch's": `{"operations":3,"complete":true,"results":[{"ops":"9","state":"done"}]}`,
		"positions as numbers":       `{"operations":3,"complete":true,"results":[{"ops":1,"state":"done"}]}`,
		"a gid less":                 `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"allocated","gids":[2000]}]}`,
		"a gid more":                 `{"operations":3,"complete":true,"results":[{"ops":"0","state":"allocated","gids":[2000,1]}]}`,
		"an allocated gid of zero":   `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"allocated","gids":[2000,-2000]}]}`,
		"allocated without gids":     `{"operations":3,"complete":true,"results":[{"ops":"0","state":"allocated","gid":2000}]}`,
		"gids above the highest":     `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"allocated","gids":[2147483647,1]}]}`,
		"gids that overflow":         `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"allocated","gids":[1,9223372036854775807]}]}`,
		"a result without operation": `{"operations":3,"complete":true,"results":[{"state":"done"}]}`,
		"a gid below zero":           `{"operations":3,"complete":true,"results":[{"ops":"1","state":"done","gid":-1}]}`,
		"a long step":                `{"operations":3,"complete":true,"results":[{"ops":"1","state":"done","gid":1,"step":9}]}`,
		"something after it":         `{"operations":3,"complete":true}{"operations":3}`,
		"too long":                   `{"operations":3,"complete":true}` + strings.Repeat(" ", wellknown.MaxTerminationMessageBytes),
	} {
		t.Run(name, func(t *testing.T) {
			report, err := DecodeReport([]byte(message), 3)
			if err == nil {
				t.Errorf("no error, but %+v", report)
			}
			if len(report.Results) != 3 {
				t.Fatalf("%d results", len(report.Results))
			}
			for i, result := range report.Results {
				if result.State != Unknown {
					t.Errorf("operation %d: %+v", i, result)
				}
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

// TestDecodeReportOfAnEarlierVersion: a worker from before reports gids in a row as steps.
func TestDecodeReportOfAnEarlierVersion(t *testing.T) {
	got, err := DecodeReport([]byte(`{"operations":4,"complete":true,"results":[{"ops":"1-3","state":"done","gid":2000,"step":1}]}`), 4)
	want := []Result{{State: Done}, {State: Done, GID: 2000}, {State: Done, GID: 2001}, {State: Done, GID: 2002}}
	if err != nil || !reflect.DeepEqual(got.Results, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A report that was cut or made up never panics, and says done only of what it lists as done,
// unless it is complete.
func FuzzDecodeReport(f *testing.F) {
	whole := Report{Results: []Result{{State: Done}, {State: Failed, Reason: NoSpace, Message: "full"}, {State: Done, GID: 7}, {State: Done, GID: 8}}}.Encode()
	for cut := range whole {
		f.Add(whole[:cut], 4)
	}
	f.Add(whole, 4)
	f.Add([]byte(`{"operations":2,"complete":false,"results":[{"ops":"0","state":"done"}]}`), 2)
	f.Add([]byte(`{"operations":-1,"complete":true}`), -1)
	f.Fuzz(func(t *testing.T, message []byte, operations int) {
		operations = min(operations, 1<<12)
		report, err := DecodeReport(message, operations)
		if len(report.Results) != max(operations, 0) {
			t.Fatalf("%d results of %d operations", len(report.Results), operations)
		}
		var claimed struct {
			Complete bool `json:"complete"`
			Results  []struct {
				State string `json:"state"`
			} `json:"results"`
		}
		unreadable := json.Unmarshal(message, &claimed) != nil
		mayBeDone := claimed.Complete
		for _, listed := range claimed.Results {
			mayBeDone = mayBeDone || listed.State == string(Done) || listed.State == string(allocated)
		}
		for i, result := range report.Results {
			if result.State == Done && (err != nil || unreadable || !mayBeDone) {
				t.Fatalf("operation %d is done by %q", i, message)
			}
		}
		if err == nil && len(report.Encode()) > wellknown.MaxTerminationMessageBytes {
			t.Error("the report, encoded again, is too long")
		}
	})
}
