package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
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

// wireReport is a report as JSON.
//
//	{"operations":4,"complete":true,"results":[
//	  {"ops":"0","state":"failed","reason":"Nested","message":"…","owners":[{"volume":"pvc-1",…}]},
//	  {"ops":"2-3","state":"done","gid":2000,"step":1}]}
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
	// Step is added to GID from each of the operations to the next.
	Step int `json:"step,omitempty"`
}

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
	return slices.Index([]State{Done, Blocked, Failed, NotDone, Unknown}, w.State)
}

// grouped combines equal results, and gids that ascend with their operations.
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
	return joinSteps(groups)
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

// joinSteps combines gids that were allocated one after the other.
func joinSteps(groups []wireResult) []wireResult {
	var joined []wireResult
	for _, next := range groups {
		if len(joined) > 0 && joined[len(joined)-1].continuedBy(next) {
			last := &joined[len(joined)-1]
			last.Operations = append(last.Operations, next.Operations...)
			last.Step = 1
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

func (w wireResult) continuedBy(next wireResult) bool {
	return w.onlyGID() && next.onlyGID() && len(next.Operations) == 1 &&
		(len(w.Operations) == 1 || w.Step == 1) && next.GID == w.GID+len(w.Operations)
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
	switch listed.State {
	case Done, Failed, Blocked, NotDone:
	default:
		return fmt.Errorf("it has the state %q", Truncate(string(listed.State), 64))
	}
	if listed.GID < 0 || listed.Step < 0 || listed.Step > 1 || listed.GID > MaxID-(len(listed.Operations)-1)*listed.Step {
		return errors.New("it has an invalid gid")
	}
	for nth, i := range listed.Operations {
		if i >= len(r.Results) || r.Results[i].State != Unknown {
			return fmt.Errorf("it lists operation %d, which does not exist or is listed already", i)
		}
		r.Results[i] = Result{
			State: listed.State, Reason: listed.Reason, Message: listed.Message,
			Owners: listed.Owners, GID: listed.GID + nth*listed.Step,
		}
	}
	return nil
}
