package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// failure is an error whose result is known.
type failure struct {
	operations.Result
	err error
}

func (f *failure) Error() string { return f.Message }
func (f *failure) Unwrap() error { return f.err }

func refuse(reason operations.Reason, format string, args ...any) *failure {
	return &failure{Result: operations.Result{State: operations.Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

func (f *failure) because(err error) *failure {
	f.err = err
	return f
}

func (f *failure) of(owners ...operations.Owner) *failure {
	f.Owners = owners
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

// ResultOf says what became of an operation that ended with an error.
func ResultOf(err error) operations.Result {
	if stop := (*stopError)(nil); errors.As(err, &stop) {
		return operations.Result{State: operations.NotDone, Reason: operations.Stopped, Message: stopMessage(stop.cause)}
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.Result
	}
	reason, advice := classify(err)
	return operations.Result{State: operations.Failed, Reason: reason, Message: err.Error() + ": " + advice}
}

// isRefusal says that mountjob or the server refused, so that nothing was done. After any other
// error everything may be done: a soft mount gives up waiting for the reply, and a rename that is
// sent again does not find what it has already moved.
func isRefusal(err error) bool {
	if f := (*failure)(nil); errors.As(err, &f) {
		return true
	}
	reason, _ := classify(err)
	return reason != operations.IOError
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
		return operations.IOError, "look at the file system and the tunnel to it; the next try goes on"
	}
}
