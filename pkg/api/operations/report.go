package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Report is what became of a batch: one Result for each operation, in the same order.
type Report struct {
	Results []Result
	// Batch is the number of the batch in its Job; 0 is the first one, too.
	Batch int
}

// RefusedReport is the report of a batch that was not begun: every operation is NotDone, with the
// reason and message of result.
func RefusedReport(operations int, result Result) Report {
	result.State = NotDone
	return Report{Results: slices.Repeat([]Result{result}, operations)}
}

// Succeeded says whether every operation is done.
func (r Report) Succeeded() bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool { return result.State != Done })
}

// Settled says whether every operation is.
func (r Report) Settled() bool {
	return !slices.ContainsFunc(r.Results, func(result Result) bool { return !result.IsSettled() })
}

// wireReport is a report as JSON.
//
//	{"operations":4,"complete":true,"results":[
//	  {"ops":"0","state":"failed","reason":"Nested","message":"…","owners":[{"volume":"pvc-1",…}]},
//	  {"ops":"2-4","state":"allocated","gids":[2007,-3,1]}]}
type wireReport struct {
	Operations int `json:"operations"`
	Batch      int `json:"batch,omitempty"`
	// Complete says that the operations that are not listed are done. Otherwise they are unknown.
	Complete bool         `json:"complete"`
	Results  []wireResult `json:"results,omitempty"`
}

type wireResult struct {
	Operations positions `json:"ops"`
	State      State     `json:"state"`
	Reason     Reason    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Owners     []Owner   `json:"owners,omitempty"`
	GID        int       `json:"gid,omitempty"`
	// GIDs are those of operations that are allocated: the first one, and the difference of each to the one
	// before. Side by side, operations do not get them in their order.
	GIDs []int `json:"gids,omitempty"`
	// Step is added to GID from each of the operations to the next. Earlier versions have it instead of GIDs.
	Step int `json:"step,omitempty"`
}

// allocated is Done with a gid for each operation. It is a state of its own because earlier versions ignore what
// they do not know of a result, but refuse a report with an unknown state.
const allocated State = "allocated"

const (
	// fewGIDs are results of their own, which earlier versions can read, too.
	fewGIDs = 32
	// gidsTogether is how many operations have their gids in one result: one that does not fit is left out.
	gidsTogether = 64
)

// detail bounds what a report has of one result: bytes of its message, and owners.
type detail struct{ message, owners int }

// details are tried in turn, until a report fits: all results with short messages are worth more
// than some with long ones.
func details() []detail { return []detail{{640, 8}, {320, 4}, {160, 2}, {80, 1}, {80, 0}, {0, 0}} }

// Encode writes the report as JSON of at most 4096 bytes. What does not fit is left out, and then
// the report is not complete.
func (r Report) Encode() []byte {
	for _, d := range details() {
		if data, ok := r.encodeAll(d); ok {
			return data
		}
	}
	return r.encodeSome(details()[len(details())-1])
}

// encodeAll lists every result that is not implied.
func (r Report) encodeAll(d detail) (data []byte, fits bool) {
	report := wireReport{Operations: len(r.Results), Batch: r.Batch, Complete: true}
	for _, listed := range r.grouped(d) {
		if listed.State == Unknown {
			return nil, false
		}
		if !r.Results[listed.Operations[0]].isImplied() {
			report.Results = append(report.Results, listed)
		}
	}
	data, err := marshal(report)
	return data, err == nil && len(data) <= wellknown.MaxTerminationMessageBytes
}

// encodeSome lists what fits, also what is done, because the report does not imply it. What was not
// done need not be listed: the manager repeats it like what is unknown.
func (r Report) encodeSome(d detail) []byte {
	report := wireReport{Operations: len(r.Results), Batch: r.Batch}
	groups := r.grouped(d)
	slices.SortStableFunc(groups, func(a, b wireResult) int { return priority(a) - priority(b) })
	best, _ := marshal(report)
	for _, listed := range groups {
		if listed.State == NotDone || listed.State == Unknown {
			continue
		}
		longer := report
		longer.Results = append(slices.Clip(report.Results), listed)
		if data, err := marshal(longer); err == nil && len(data) <= wellknown.MaxTerminationMessageBytes {
			best, report = data, longer
		}
	}
	return best
}

// priority orders the results of a report that is not complete.
func priority(w wireResult) int {
	return slices.Index([]State{allocated, Done, Blocked, Failed, NotDone, Unknown}, w.State)
}

// grouped combines equal results, and those with nothing but different gids.
func (r Report) grouped(d detail) []wireResult {
	var groups []wireResult
	index := map[string]int{} // result as JSON -> its group
	for i, result := range r.Results {
		listed := trimmed(result, d)
		key, _ := marshal(listed)
		if at, ok := index[string(key)]; ok {
			groups[at].Operations = append(groups[at].Operations, i)
			continue
		}
		index[string(key)] = len(groups)
		listed.Operations = positions{i}
		groups = append(groups, listed)
	}
	return joinGIDs(groups)
}

func trimmed(result Result, d detail) wireResult {
	listed := wireResult{State: result.State, Reason: result.Reason, GID: result.GID}
	listed.Message = Truncate(result.Message, d.message)
	if result.State == Blocked {
		d.owners = max(d.owners, 1) // without an owner, the manager could not release it
	}
	for _, owner := range result.Owners[:min(len(result.Owners), d.owners)] {
		listed.Owners = append(listed.Owners, Owner{
			Volume: Truncate(owner.Volume, 255), Cluster: Truncate(owner.Cluster, 255), Namespace: Truncate(owner.Namespace, 255),
			Claim: Truncate(owner.Claim, 255), ClaimUID: Truncate(owner.ClaimUID, 255),
		})
	}
	return listed
}

// joinGIDs combines results with one gid each, unless they are few.
func joinGIDs(groups []wireResult) []wireResult {
	var others []wireResult
	gids := map[int]int{} // by operation
	for _, group := range groups {
		if !group.onlyGID() {
			others = append(others, group)
			continue
		}
		for _, i := range group.Operations {
			gids[i] = group.GID
		}
	}
	if len(groups)-len(others) <= fewGIDs {
		return groups
	}
	for ops := range slices.Chunk(slices.Sorted(maps.Keys(gids)), gidsTogether) {
		joined, before := wireResult{Operations: ops, State: allocated}, 0
		for _, i := range ops {
			joined.GIDs = append(joined.GIDs, gids[i]-before)
			before = gids[i]
		}
		others = append(others, joined)
	}
	return others
}

func (w wireResult) onlyGID() bool {
	return w.State == Done && w.GID != 0 && w.Reason == "" && w.Message == "" && len(w.Owners) == 0
}

// DecodeReport reads the report of a batch with that number of operations. A report that is damaged
// in any way is an error, and every operation is Unknown.
func DecodeReport(message []byte, operations int) (Report, error) {
	unknown := Report{Results: make([]Result, max(operations, 0))}
	report, err := decodeReport(message, operations)
	if err != nil {
		return unknown, fmt.Errorf("reading the report of %d operations: %w", operations, err)
	}
	return report, nil
}

func decodeReport(message []byte, operations int) (Report, error) {
	if len(message) > wellknown.MaxTerminationMessageBytes {
		return Report{}, fmt.Errorf("it has %d bytes, more than %d", len(message), wellknown.MaxTerminationMessageBytes)
	}
	var wire wireReport
	if err := json.Unmarshal(message, &wire); err != nil {
		return Report{}, err
	}
	if wire.Operations != operations || operations < 0 {
		return Report{}, fmt.Errorf("it reports %d operations", wire.Operations)
	}
	report := Report{Results: make([]Result, operations), Batch: wire.Batch}
	for _, listed := range wire.Results {
		if err := report.set(listed); err != nil {
			return Report{}, err
		}
	}
	if wire.Complete {
		for i := range report.Results {
			if report.Results[i].State == Unknown {
				report.Results[i].State = Done
			}
		}
	}
	return report, nil
}

// set gives the operations of a listed result that result.
func (r Report) set(listed wireResult) error {
	gids, err := listed.gids()
	if err != nil {
		return err
	}
	for nth, i := range listed.Operations {
		if i >= len(r.Results) || r.Results[i].State != Unknown {
			return fmt.Errorf("it lists operation %d, which does not exist or is listed already", i)
		}
		r.Results[i] = Result{State: listed.State, Reason: listed.Reason, Message: listed.Message, Owners: listed.Owners, GID: gids[nth]}
		if listed.State == allocated {
			r.Results[i].State = Done
		}
	}
	return nil
}

// gids are those of the operations of a result, 0 for none.
func (w wireResult) gids() ([]int, error) {
	steps := w.GIDs
	switch w.State {
	case allocated:
	case Done, Failed, Blocked, NotDone:
		if w.Step < 0 || w.Step > 1 {
			return nil, fmt.Errorf("it has gids in steps of %d", w.Step)
		}
		steps = append([]int{w.GID}, slices.Repeat([]int{w.Step}, max(len(w.Operations)-1, 0))...)
	default:
		return nil, fmt.Errorf("it has the state %q", Truncate(string(w.State), 64))
	}
	if len(steps) != len(w.Operations) {
		return nil, fmt.Errorf("it has %d gids for %d operations", len(steps), len(w.Operations))
	}
	gids, gid := make([]int, len(steps)), 0
	for i, step := range steps {
		if step < -MaxID || step > MaxID || gid+step < 0 || gid+step > MaxID || w.State == allocated && gid+step == 0 {
			return nil, errors.New("it has an invalid gid")
		}
		gid += step
		gids[i] = gid
	}
	return gids, nil
}
