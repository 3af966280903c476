package operations

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Report is what became of a batch: one Result for each operation, in the same order.
type Report struct {
	Results []Result
	// Batch is the number of the batch in its Job; 0 is the first one, too.
	Batch int
}

// RefusedReport is the report of a batch that was not begun: all is NotDone, with the reason and message of result.
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

// wireReport is a report as JSON. Operations has a number for each operation: 0 if it is done, its gid if it
// is done and got one, and -n if it has the nth of the results.
//
//	{"operations":[0,-1,2007,-2,-1],"results":[{"state":"failed","reason":"Nested","message":"…"},{}]}
type wireReport struct {
	Batch      int      `json:"batch,omitempty"`
	Operations []int    `json:"operations"`
	Results    []Result `json:"results,omitempty"`
}

// What a report has of one result.
const (
	maxMessageBytes = 640
	maxOwners       = 8
)

// MaxReportBytes is the most that Encode writes: a full batch with a message of its own for each operation.
const MaxReportBytes = 1 << 20

// Encode writes the whole report, for the leader.
func (r Report) Encode() []byte { return r.fit(MaxReportBytes) }

// TerminationMessage writes as much of the report as a termination message holds. The results of the other
// operations are Unknown in it: unless the leader has the whole report, it repeats them.
func (r Report) TerminationMessage() []byte { return r.fit(wellknown.MaxTerminationMessageBytes) }

// fit writes the results, shortened if they are too long, or as many of them as fit. What is done comes first:
// without it a claim would be set up again.
func (r Report) fit(limit int) []byte {
	if data := r.with(r.Results, maxMessageBytes, maxOwners).encode(); len(data) <= limit {
		return data
	}
	order := make([]int, len(r.Results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return r.Results[a].rank() - r.Results[b].rank() })
	first := func(n int) []byte {
		results := make([]Result, len(r.Results))
		for _, i := range order[:n] {
			results[i] = r.Results[i]
		}
		return r.with(results, 160, 0).encode()
	}
	return first(sort.Search(len(order), func(n int) bool { return len(first(n+1)) > limit }))
}

// with returns the report with other results, of which it keeps so many bytes of a message, and owners. What is
// blocked keeps one: without it, the manager could not release it.
func (r Report) with(results []Result, message, owners int) Report {
	r.Results = make([]Result, len(results))
	for i, result := range results {
		result.Message = Truncate(result.Message, message)
		kept := owners
		if result.State == Blocked {
			kept = max(owners, 1)
		}
		result.Owners = slices.Clone(result.Owners[:min(len(result.Owners), kept)])
		for n, owner := range result.Owners {
			result.Owners[n] = Owner{
				Volume: Truncate(owner.Volume, 255), Cluster: Truncate(owner.Cluster, 255), Namespace: Truncate(owner.Namespace, 255),
				Claim: Truncate(owner.Claim, 255), ClaimUID: Truncate(owner.ClaimUID, 255),
			}
		}
		r.Results[i] = result
	}
	return r
}

func (r Report) encode() []byte {
	wire := wireReport{Batch: r.Batch, Operations: make([]int, len(r.Results))}
	numbers := map[string]int{} // result as JSON -> its number
	for i, result := range r.Results {
		if result.isPlain() {
			wire.Operations[i] = result.GID
			continue
		}
		key, _ := marshal(result)
		if numbers[string(key)] == 0 {
			wire.Results = append(wire.Results, result)
			numbers[string(key)] = -len(wire.Results)
		}
		wire.Operations[i] = numbers[string(key)]
	}
	data, _ := marshal(wire) // numbers and texts can always be written
	return data
}

// DecodeReport reads the report of so many operations. One that is damaged in any way is an error: all are Unknown.
func DecodeReport(message []byte, operations int) (Report, error) {
	report, err := decodeReport(message, operations)
	if err != nil {
		return Report{Results: make([]Result, max(operations, 0))}, fmt.Errorf("reading the report of %d operations: %w", operations, err)
	}
	return report, nil
}

func decodeReport(message []byte, operations int) (Report, error) {
	if len(message) > MaxReportBytes {
		return Report{}, fmt.Errorf("it has %d bytes, more than %d", len(message), MaxReportBytes)
	}
	var wire wireReport
	if err := json.Unmarshal(message, &wire); err != nil {
		return Report{}, err
	}
	if len(wire.Operations) != operations {
		return Report{}, fmt.Errorf("it reports %d operations", len(wire.Operations))
	}
	for _, result := range wire.Results {
		if result.rank() < 0 || result.GID < 0 || result.GID > MaxID {
			return Report{}, fmt.Errorf("it has the state %q, and the gid %d", Truncate(string(result.State), 64), result.GID)
		}
	}
	report := Report{Results: make([]Result, operations), Batch: wire.Batch}
	for i, number := range wire.Operations {
		switch {
		case number < -len(wire.Results) || number > MaxID:
			return Report{}, fmt.Errorf("operation %d has the number %d", i, number)
		case number < 0:
			report.Results[i] = wire.Results[-number-1]
		default:
			report.Results[i] = Result{State: Done, GID: number}
		}
	}
	return report.with(report.Results, maxMessageBytes, maxOwners), nil
}

// State is how far an operation came.
type State string

// The states of an operation.
const (
	// Unknown: the report does not say. The operation may be done; repeating it is harmless.
	Unknown State = ""
	// Done: the operation succeeded, now or earlier.
	Done State = "done"
	// Failed: Reason and Message say why. No data was removed.
	Failed State = "failed"
	// Blocked: a cleanup has begun, but Owners of the same cluster own the directory, too. Another cleanup finishes it.
	Blocked State = "blocked"
	// NotDone: the batch was stopped before the operation, or in the middle of it.
	NotDone State = "notDone"
)

// Reason is for programs, the message beside it for people.
type Reason string

// Reasons why an operation was refused.
const (
	BadOperation          Reason = "BadOperation"
	BadPath               Reason = "BadPath"
	Nested                Reason = "Nested"
	OwnedByOtherNamespace Reason = "OwnedByOtherNamespace"
	OwnedByOtherCluster   Reason = "OwnedByOtherCluster"
	OwnedByOtherClass     Reason = "OwnedByOtherClass"
	VolumeNameTaken       Reason = "VolumeNameTaken"
	PathTaken             Reason = "PathTaken"
	NotEmptyUnowned       Reason = "NotEmptyUnowned"
	SymlinkInPath         Reason = "SymlinkInPath"
	NotADirectory         Reason = "NotADirectory"
	NotFound              Reason = "NotFound"
	NothingToRestore      Reason = "NothingToRestore"
	// SourceGone: the directory that a clone copies is no longer its owner's.
	SourceGone Reason = "SourceGone"
	// TooDeep: it has more directories inside each other than a clone copies.
	TooDeep       Reason = "TooDeep"
	GIDsExhausted Reason = "GIDsExhausted"
	LedgerDamaged Reason = "LedgerDamaged"
)

// Reasons that may pass: the same operation can succeed later.
const (
	Changed          Reason = "Changed"
	NoSpace          Reason = "NoSpace"
	ReadOnly         Reason = "ReadOnly"
	PermissionDenied Reason = "PermissionDenied"
	IOError          Reason = "IOError"
	Stopped          Reason = "Stopped"
	Locked           Reason = "Locked"
)

// Reasons why mountjob did not touch the mounted file system at all.
const (
	NotNFS          Reason = "NotNFS"
	WrongFileSystem Reason = "WrongFileSystem"
)

// Reasons beside Done: a cleanup dropped its owner, and did not move the directory.
const (
	// StillOwned: Owners have it now.
	StillOwned Reason = "StillOwned"
	// Retained: it has the retained data of an earlier volume.
	Retained Reason = "Retained"
	// NotMade: it existed before any volume had it.
	NotMade Reason = "NotMade"
	// NotOwned: the ledger has no entry for the volume, or one of another cluster or claim.
	NotOwned Reason = "NotOwned"
)

// Result is what became of one operation.
type Result struct {
	State   State  `json:"state,omitempty"`
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Owners prevented the operation, or keep the directory; those of the operation's cluster come first.
	Owners []Owner `json:"owners,omitempty"`
	// GID is the allocated group of the directory of a setup or restore; 0 is none.
	GID int `json:"gid,omitempty"`
}

// isPlain reports whether nothing is to be said about an operation that is done, but its gid.
func (r Result) isPlain() bool {
	return r.State == Done && r.Reason == "" && r.Message == "" && len(r.Owners) == 0 && 0 <= r.GID && r.GID <= MaxID
}

// rank orders results for a report without room for all; below 0 the state is not valid.
func (r Result) rank() int {
	return slices.Index([]State{Done, Blocked, Failed, NotDone, Unknown}, r.State)
}

// IsSettled says that the operation was done, blocked or refused, as it would be everywhere. Otherwise its Job or
// its file system kept it from being tried to the end.
func (r Result) IsSettled() bool {
	mayPass := slices.Contains([]Reason{NoSpace, ReadOnly, PermissionDenied, IOError}, r.Reason)
	return r.State == Done || r.State == Blocked || r.State == Failed && !mayPass
}
