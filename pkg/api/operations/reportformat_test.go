package operations

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestReportFormat holds what a termination message says.
func TestReportFormat(t *testing.T) {
	done, gid := Result{State: Done}, func(n int) Result { return Result{State: Done, GID: n} }
	full := Result{State: Failed, Reason: NoSpace, Message: "full"}
	for name, tt := range map[string]struct {
		report Report
		want   string
	}{
		"nothing to do":         {Report{Results: []Result{}}, `{"operations":[]}`},
		"all done":              {Report{Results: []Result{done, done}}, `{"operations":[0,0]}`},
		"a later batch":         {Report{Results: []Result{done}, Batch: 3}, `{"batch":3,"operations":[0]}`},
		"groups":                {Report{Results: []Result{gid(8), done, gid(7)}}, `{"operations":[8,0,7]}`},
		"one failed":            {Report{Results: []Result{done, full, done}}, `{"operations":[0,-1,0],"results":[{"state":"failed","reason":"NoSpace","message":"full"}]}`},
		"two failed alike":      {Report{Results: []Result{full, done, full}}, `{"operations":[-1,0,-1],"results":[{"state":"failed","reason":"NoSpace","message":"full"}]}`},
		"stopped":               {Report{Results: []Result{done, {State: NotDone, Reason: Stopped}}}, `{"operations":[0,-1],"results":[{"state":"notDone","reason":"Stopped"}]}`},
		"one directory stays":   {Report{Results: []Result{{State: Done, Reason: Retained}, done}}, `{"operations":[-1,0],"results":[{"state":"done","reason":"Retained"}]}`},
		"a message beside done": {Report{Results: []Result{{State: Done, Message: "x"}, done}}, `{"operations":[-1,0],"results":[{"state":"done","message":"x"}]}`},
		"an owner beside done":  {Report{Results: []Result{{State: Done, Owners: []Owner{{Volume: "v"}}}, done}}, `{"operations":[-1,0],"results":[{"state":"done","owners":[{"volume":"v"}]}]}`},
		"a blocked one":         {Report{Results: []Result{{State: Blocked, Reason: StillOwned, Owners: []Owner{{Volume: "v", Cluster: "c", Namespace: "n", Claim: "d", ClaimUID: "u"}}}}}, `{"operations":[-1],"results":[{"state":"blocked","reason":"StillOwned","owners":[{"volume":"v","cluster":"c","ns":"n","claim":"d","uid":"u"}]}]}`},
		"a group with a reason": {Report{Results: []Result{gid(7), {State: Done, GID: 8, Reason: NotMade}}}, `{"operations":[7,-1],"results":[{"state":"done","reason":"NotMade","gid":8}]}`},
		"one is not known":      {Report{Results: []Result{done, {}, full}}, `{"operations":[0,-1,-2],"results":[{},{"state":"failed","reason":"NoSpace","message":"full"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			message := tt.report.TerminationMessage()
			if string(message) != tt.want {
				t.Errorf("encoded as %s\nwant       %s", message, tt.want)
			}
			got, err := DecodeReport(message, len(tt.report.Results))
			if err != nil || got.Batch != tt.report.Batch || !reflect.DeepEqual(got.Results, tt.report.Results) {
				t.Errorf("got %+v, error %v", got, err)
			}
		})
	}
}

// TestReportWithoutRoomKeepsWhatMattersMost has results of every state, more than fit: without "done" a
// claim would be set up again, and without "blocked" no owner would be released.
func TestReportWithoutRoomKeepsWhatMattersMost(t *testing.T) {
	var report Report
	for i := range 100 {
		report.Results = append(report.Results,
			Result{State: NotDone, Reason: Stopped},
			Result{State: Failed, Reason: Reason(fmt.Sprint("R", i, strings.Repeat("x", 30)))},
			Result{State: Blocked, Owners: []Owner{{Volume: fmt.Sprint("v", i)}}},
			Result{State: Done, GID: 2000 + i*7919%512},
		)
	}
	message := report.TerminationMessage()
	got, err := DecodeReport(message, len(report.Results))
	if err != nil || len(message) > wellknown.MaxTerminationMessageBytes {
		t.Fatalf("%d bytes, error %v", len(message), err)
	}
	states := map[State]int{}
	for _, result := range got.Results {
		states[result.State]++
	}
	if states[Done] < 100 || states[Blocked] < 30 || states[Failed] > 0 {
		t.Errorf("the report has %v", states)
	}
}

func TestDetailsOfResultsAreBounded(t *testing.T) {
	var owners []Owner
	for i := range 20 {
		owners = append(owners, owner("c1", "ns", i))
	}
	result := Result{State: Failed, Reason: Nested, Message: strings.Repeat("m", 1000), Owners: owners}
	for count, want := range map[int]struct{ message, owners int }{1: {640, 8}, 10: {160, 0}} {
		var report Report
		for i := range count {
			result.Reason = Reason(fmt.Sprint("R", i))
			report.Results = append(report.Results, result)
		}
		got, err := DecodeReport(report.TerminationMessage(), count)
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range got.Results {
			if len(result.Owners) != want.owners || len(result.Message) != want.message {
				t.Errorf("of %d results, the %d. has %d owners and a message of %d bytes", count, i, len(result.Owners), len(result.Message))
			}
		}
	}
}

func TestSucceeded(t *testing.T) {
	for name, tt := range map[string]struct {
		results []Result
		want    bool
	}{
		"nothing to do":       {nil, true},
		"all done":            {[]Result{{State: Done}, {State: Done, Reason: NotMade}}, true},
		"the last one failed": {[]Result{{State: Done}, {State: Failed}}, false},
		"one is blocked":      {[]Result{{State: Blocked}, {State: Done}}, false},
		"one was not begun":   {[]Result{{State: NotDone}}, false},
		"one is not known":    {[]Result{{}}, false},
	} {
		if got := (Report{Results: tt.results}).Succeeded(); got != tt.want {
			t.Errorf("%s: succeeded is %t", name, got)
		}
	}
}
