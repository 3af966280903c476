package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// refusal is an error of mountjob's own, which knows the result of its operation.
type refusal struct {
	operations.Result
	err error
}

func (r *refusal) Error() string { return r.Message }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason operations.Reason, format string, args ...any) *refusal {
	return &refusal{Result: operations.Result{State: operations.Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

func (r *refusal) because(err error) *refusal {
	r.err = err
	return r
}

// of names the owner that is in the way.
func (r *refusal) of(owner operations.Owner) *refusal {
	r.Owners = []operations.Owner{owner}
	return r
}

func asRefusal(err error) (*refusal, bool) { return errors.AsType[*refusal](err) }

// stopError ends a batch or a sweep between two steps.
type stopError struct{ cause error }

func (s *stopError) Error() string { return fmt.Sprintf("stopped: %v", s.cause) }
func (s *stopError) Unwrap() error { return s.cause }

// message is for the result of an operation that was not done.
func (s *stopError) message() string {
	if errors.Is(s.cause, context.DeadlineExceeded) {
		return "the Job's time was over before this; the next Job goes on"
	}
	return "the Job was stopped before this; the next Job goes on"
}

// IsStop reports whether a batch or a sweep was stopped: err is, or wraps, the error of that.
func IsStop(err error) bool {
	_, ok := errors.AsType[*stopError](err)
	return ok
}

// ResultOf is the result of an operation that ended with an error.
func ResultOf(err error) operations.Result {
	if stop, ok := errors.AsType[*stopError](err); ok {
		return operations.Result{State: operations.NotDone, Reason: operations.Stopped, Message: stop.message()}
	}
	if r, ok := asRefusal(err); ok {
		return r.Result
	}
	reason, advice := classify(err)
	return operations.Result{State: operations.Failed, Reason: reason, Message: err.Error() + ": " + advice}
}

// changedNothing reports whether mountjob or the server refused an operation, so that nothing was
// done. After any other error everything may be done: a soft mount gives up waiting for the reply,
// a rename that is sent again does not find what it has already moved, and who has lost the lock does not know
// what the next one does.
func changedNothing(err error) bool {
	if errors.Is(err, errLockLost) {
		return false
	}
	if _, ok := asRefusal(err); ok {
		return true
	}
	reason, _ := classify(err)
	return reason != operations.IOError
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// classify derives the reason from the kernel's error.
func classify(err error) (reason operations.Reason, advice string) {
	switch {
	case isNoSpace(err):
		return operations.NoSpace, "free space or raise the quota; the next try goes on"
	case errors.Is(err, syscall.EROFS):
		return operations.ReadOnly, "the file system is read-only: check its policy and replication"
	case errors.Is(err, fs.ErrPermission):
		return operations.PermissionDenied, "let root on this node write to the root of the file system (file system policy, access point, root squash)"
	case errors.Is(err, syscall.EXDEV):
		return operations.NotADirectory, "another file system is mounted on the way"
	default:
		return operations.IOError, "check the file system and the tunnel to it; the next try goes on"
	}
}

// quote shortens a path for a message.
func quote(p string) string {
	short := operations.Truncate(p, 256)
	if short != p {
		short += "…"
	}
	return fmt.Sprintf("%q", short)
}
