package operations

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestReportFormat holds what a termination message says: mountjob may be older or newer than the manager.
func TestReportFormat(t *testing.T) {
	done, gid := Result{State: Done}, func(n int) Result { return Result{State: Done, GID: n} }
	full := Result{State: Failed, Reason: NoSpace, Message: "full"}
	note := func(edit func(*Result)) []Result {
		r := gid(8)
		edit(&r)
		return []Result{gid(7), r}
	}
	many := []Result{done}
	for n := range fewGIDs + 1 {
		many = append(many, gid(2000+fewGIDs-n))
	}
	for name, tt := range map[string]struct {
		report Report
		want   string
	}{
		"nothing to do":                {Report{Results: []Result{}}, `{"operations":0,"complete":true}`},
		"all done":                     {Report{Results: []Result{done, done}}, `{"operations":2,"complete":true}`},
		"a later batch":                {Report{Results: []Result{done}, Batch: 3}, `{"operations":1,"batch":3,"complete":true}`},
		"one failed":                   {Report{Results: []Result{done, full, done}}, `{"operations":3,"complete":true,"results":[{"ops":"1","state":"failed","reason":"NoSpace","message":"full"}]}`},
		"two failed alike":             {Report{Results: []Result{full, done, full}}, `{"operations":3,"complete":true,"results":[{"ops":"0,2","state":"failed","reason":"NoSpace","message":"full"}]}`},
		"stopped":                      {Report{Results: []Result{done, {State: NotDone, Reason: Stopped}}}, `{"operations":2,"complete":true,"results":[{"ops":"1","state":"notDone","reason":"Stopped"}]}`},
		"one directory stays":          {Report{Results: []Result{{State: Done, Reason: Retained}, done}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","reason":"Retained"}]}`},
		"a message beside done":        {Report{Results: []Result{{State: Done, Message: "x"}, done}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","message":"x"}]}`},
		"an owner beside done":         {Report{Results: []Result{{State: Done, Owners: []Owner{{Volume: "v"}}}, done}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","owners":[{"volume":"v"}]}]}`},
		"a blocked one":                {Report{Results: []Result{{State: Blocked, Reason: StillOwned, Owners: []Owner{{Volume: "v", Cluster: "c", Namespace: "n", Claim: "d", ClaimUID: "u"}}}}}, `{"operations":1,"complete":true,"results":[{"ops":"0","state":"blocked","reason":"StillOwned","owners":[{"volume":"v","cluster":"c","ns":"n","claim":"d","uid":"u"}]}]}`},
		"one group":                    {Report{Results: []Result{gid(7)}}, `{"operations":1,"complete":true,"results":[{"ops":"0","state":"done","gid":7}]}`},
		"groups in a row":              {Report{Results: []Result{gid(7), gid(8)}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"done","gid":8}]}`},
		"many groups":                  {Report{Results: many}, `{"operations":34,"complete":true,"results":[{"ops":"1-33","state":"allocated","gids":[2032` + strings.Repeat(",-1", 32) + `]}]}`},
		"groups around one without":    {Report{Results: []Result{gid(7), done, gid(8)}}, `{"operations":3,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"2","state":"done","gid":8}]}`},
		"groups with a gap":            {Report{Results: []Result{gid(7), gid(9)}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"done","gid":9}]}`},
		"groups that descend":          {Report{Results: []Result{gid(8), gid(7)}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":8},{"ops":"1","state":"done","gid":7}]}`},
		"a shared group before":        {Report{Results: []Result{gid(7), gid(7), gid(9)}}, `{"operations":3,"complete":true,"results":[{"ops":"0-1","state":"done","gid":7},{"ops":"2","state":"done","gid":9}]}`},
		"a shared group next":          {Report{Results: []Result{gid(7), gid(8), gid(8)}}, `{"operations":3,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1-2","state":"done","gid":8}]}`},
		"a group with a reason":        {Report{Results: note(func(r *Result) { r.Reason = NotMade })}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"done","reason":"NotMade","gid":8}]}`},
		"a group with a message":       {Report{Results: note(func(r *Result) { r.Message = "x" })}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"done","message":"x","gid":8}]}`},
		"a group with an owner":        {Report{Results: note(func(r *Result) { r.Owners = []Owner{{Volume: "v"}} })}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"done","owners":[{"volume":"v"}],"gid":8}]}`},
		"a group of one that failed":   {Report{Results: note(func(r *Result) { r.State = Failed })}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","gid":7},{"ops":"1","state":"failed","gid":8}]}`},
		"a group after one with words": {Report{Results: []Result{{State: Done, GID: 6, Message: "x"}, gid(7)}}, `{"operations":2,"complete":true,"results":[{"ops":"0","state":"done","message":"x","gid":6},{"ops":"1","state":"done","gid":7}]}`},
		"a group of 1 after none":      {Report{Results: []Result{{State: Done}, gid(1)}}, `{"operations":2,"complete":true,"results":[{"ops":"1","state":"done","gid":1}]}`},
		"one is not known":             {Report{Results: []Result{done, {}, full}}, `{"operations":3,"complete":false,"results":[{"ops":"0","state":"done"},{"ops":"2","state":"failed","reason":"NoSpace"}]}`},
		"one is not known, one late":   {Report{Results: []Result{{State: NotDone}, {}, done}}, `{"operations":3,"complete":false,"results":[{"ops":"2","state":"done"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			message := tt.report.Encode()
			if string(message) != tt.want {
				t.Errorf("encoded as %s\nwant       %s", message, tt.want)
			}
			got, err := DecodeReport(message, len(tt.report.Results))
			if err != nil || got.Batch != tt.report.Batch {
				t.Fatalf("batch %d, error %v", got.Batch, err)
			}
			for i, want := range tt.report.Results {
				if strings.Contains(tt.want, `"complete":false`) {
					want.Message = "" // of a report that cannot say everything
					if want.State == NotDone {
						want = Result{}
					}
				}
				if !reflect.DeepEqual(got.Results[i], want) {
					t.Errorf("operation %d: %+v, want %+v", i, got.Results[i], want)
				}
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
	message := report.Encode()
	got, err := DecodeReport(message, len(report.Results))
	if err != nil || len(message) > wellknown.MaxTerminationMessageBytes {
		t.Fatalf("%d bytes, error %v", len(message), err)
	}
	states := map[State]int{}
	for _, result := range got.Results {
		states[result.State]++
	}
	if states[Done] < 60 || states[Done] < 100 && states[Blocked]+states[Failed] > 1 || states[NotDone] > 0 {
		t.Errorf("the report has %v", states)
	}
}

// TestReportIsFilledToTheLastByte: a message is cut only if the report is too long with it.
func TestReportIsFilledToTheLastByte(t *testing.T) {
	with := func(reasonBytes int) []byte {
		return Report{Results: []Result{{State: Failed, Reason: Reason(strings.Repeat("r", reasonBytes)), Message: "why"}}}.Encode()
	}
	fits := 1 + wellknown.MaxTerminationMessageBytes - len(with(1))
	if message := with(fits); len(message) != wellknown.MaxTerminationMessageBytes || !strings.Contains(string(message), "why") {
		t.Errorf("%d bytes: %.100s", len(message), message)
	}
	if message := with(fits + 1); len(message) >= wellknown.MaxTerminationMessageBytes || strings.Contains(string(message), "why") {
		t.Errorf("%d bytes: %.100s", len(message), message)
	}
	longest := `{"operations":0,"complete":true}`
	longest += strings.Repeat(" ", wellknown.MaxTerminationMessageBytes-len(longest))
	if _, err := DecodeReport([]byte(longest), 0); err != nil {
		t.Error(err)
	}
}

func TestDetailsOfResultsAreBounded(t *testing.T) {
	var owners []Owner
	for i := range 20 {
		owners = append(owners, owner("c1", "ns", i))
	}
	for name, tt := range map[string]struct {
		result Result
		count  int // of such results, each with a message of its own
		owners int // that are left
	}{
		"of one, many owners":      {Result{State: Failed, Reason: Nested, Owners: owners}, 1, 8},
		"of ten, fewer":            {Result{State: Failed, Reason: Nested, Owners: owners}, 10, 2},
		"of many, none":            {Result{State: Failed, Reason: Nested, Owners: owners}, 30, 0},
		"of many that are blocked": {Result{State: Blocked, Reason: StillOwned, Owners: owners}, 30, 1},
	} {
		var report Report
		for i := range tt.count {
			tt.result.Message = fmt.Sprint(i)
			report.Results = append(report.Results, tt.result)
		}
		got, err := DecodeReport(report.Encode(), tt.count)
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range got.Results {
			if len(result.Owners) != tt.owners || result.State != tt.result.State {
				t.Errorf("%s: result %d is %s with %d owners, want %d", name, i, result.State, len(result.Owners), tt.owners)
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
