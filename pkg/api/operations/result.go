package operations

import "slices"

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
	// Blocked: a cleanup has begun, but Owners of the same cluster own the directory, too. It is
	// finished by another cleanup.
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
	// Owners prevented the operation, or keep the directory; those of the operation's cluster come
	// first.
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
	switch r.State {
	case Done, Blocked:
		return true
	case Failed:
		return !slices.Contains([]Reason{NoSpace, ReadOnly, PermissionDenied, IOError}, r.Reason)
	case NotDone, Unknown:
	}
	return false
}
