package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

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

// failure is an error that knows its reason.
type failure struct {
	reason  Reason
	message string
	owners  []Owner
	err     error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.err }

func refuse(reason Reason, format string, args ...any) *failure {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

func (f *failure) because(err error) *failure {
	f.err = err
	return f
}

func (f *failure) of(owners ...Owner) *failure {
	f.owners = owners
	return f
}

// stopError ends a batch between two steps.
type stopError struct{ cause error }

func (s *stopError) Error() string { return fmt.Sprintf("stopped: %v", s.cause) }
func (s *stopError) Unwrap() error { return s.cause }

// IsStop says that an error is, or holds, that of a batch or a sweep that was stopped.
func IsStop(err error) bool {
	stop := (*stopError)(nil)
	return errors.As(err, &stop)
}

// resultOf tells an error as a result.
func resultOf(err error) Result {
	if stop := (*stopError)(nil); errors.As(err, &stop) {
		return Result{State: NotDone, Reason: Stopped, Message: stopMessage(stop.cause)}
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return Result{State: Failed, Reason: f.reason, Message: f.message, Owners: f.owners}
	}
	reason, advice := classify(err)
	return Result{State: Failed, Reason: reason, Message: err.Error() + ": " + advice}
}

// isRefusal says that an error is an answer, ours or the server's, and that nothing was done. Any
// other may hide that all was: a soft mount gives up on an answer, and a rename that is sent
// again does not find what it has already moved.
func isRefusal(err error) bool {
	if f := (*failure)(nil); errors.As(err, &f) {
		return true
	}
	reason, _ := classify(err)
	return reason != IOError
}

func stopMessage(cause error) string {
	if errors.Is(cause, context.DeadlineExceeded) {
		return "the Job's time was over before this; the next Job goes on"
	}
	return "the Job was stopped before this; the next Job goes on"
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// classify finds the reason in what the kernel said.
func classify(err error) (reason Reason, advice string) {
	switch {
	case isNoSpace(err):
		return NoSpace, "free space or raise the quota; the next try goes on"
	case errors.Is(err, syscall.EROFS):
		return ReadOnly, "the file system is read-only: check its policy and replication"
	case errors.Is(err, fs.ErrPermission):
		return PermissionDenied, "let root on this node write to the root of the file system (file system policy, access point, root squash)"
	case errors.Is(err, syscall.EXDEV):
		return NotADirectory, "another file system is mounted on the way"
	default:
		return IOError, "look at the file system and the tunnel to it; the next try goes on"
	}
}
