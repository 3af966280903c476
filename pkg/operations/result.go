package operations

// State is how far an operation came.
type State string

// The states of an operation.
const (
	// Unknown: nobody said. It may have been done; doing it again is harmless.
	Unknown State = ""
	// Done: what was asked for holds.
	Done State = "done"
	// Failed: the reason and the message say why; nothing was taken away.
	Failed State = "failed"
	// Blocked: a cleanup has begun to leave, but Owners of the same cluster are still there. It
	// goes on when it is asked again.
	Blocked State = "blocked"
	// NotDone: the batch was stopped before or in the middle of it.
	NotDone State = "notDone"
)

// Reason is a stable word for programs; the message beside it is for people.
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
	GIDsExhausted         Reason = "GIDsExhausted"
	LedgerDamaged         Reason = "LedgerDamaged"
)

// Reasons of a moment; the same operation can succeed later.
const (
	Changed          Reason = "Changed"
	NoSpace          Reason = "NoSpace"
	ReadOnly         Reason = "ReadOnly"
	PermissionDenied Reason = "PermissionDenied"
	IOError          Reason = "IOError"
	Stopped          Reason = "Stopped"
	Locked           Reason = "Locked"
)

// Reasons why nothing at all was touched.
const (
	NotNFS          Reason = "NotNFS"
	WrongFileSystem Reason = "WrongFileSystem"
)

// Reasons beside Done: a cleanup dropped its owner, and the directory is where it was.
const (
	// StillOwned: Owners have it now.
	StillOwned Reason = "StillOwned"
	// Retained: an earlier volume's data is there, which was retained.
	Retained Reason = "Retained"
	// NotMade: it was there before any volume was.
	NotMade Reason = "NotMade"
	// NotOwned: the volume's own entry is not there, or is one of another cluster or claim.
	NotOwned Reason = "NotOwned"
)

// Result is what became of one operation.
type Result struct {
	State   State
	Reason  Reason
	Message string
	// Owners are in the way, or keep the directory; those of the asker's cluster first.
	Owners []Owner
	// GID is the group that belongs to the directory of a setup or restore; 0 is none.
	GID int
}

// silent says that a result needs no telling when all the others are told.
func (r Result) silent() bool {
	return r.State == Done && r.Reason == "" && r.Message == "" && len(r.Owners) == 0 && r.GID == 0
}
