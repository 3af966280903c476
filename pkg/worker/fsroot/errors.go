package fsroot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Refusal is an error of mountjob's own, which knows the result of its operation.
type Refusal struct {
	operations.Result
	Cause error
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Refuse makes the error of an operation that the rules refuse.
func Refuse(reason operations.Reason, format string, args ...any) *Refusal {
	return &Refusal{Result: operations.Result{State: operations.Failed, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// Because adds the cause.
func (r *Refusal) Because(err error) *Refusal {
	r.Cause = err
	return r
}

// Of names the owner that is in the way.
func (r *Refusal) Of(owner operations.Owner) *Refusal {
	r.Owners = []operations.Owner{owner}
	return r
}

// AsRefusal finds the refusal in an error.
func AsRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// StopError ends a batch or a sweep between two steps.
type StopError struct{ Cause error }

// Error returns the message.
func (s *StopError) Error() string { return fmt.Sprintf("stopped: %v", s.Cause) }

// Unwrap returns the cause.
func (s *StopError) Unwrap() error { return s.Cause }

// Stopped returns the StopError of a context that has ended, or nil.
func Stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &StopError{Cause: context.Cause(ctx)}
}

func (s *StopError) message() string {
	if errors.Is(s.Cause, context.DeadlineExceeded) {
		return "the Job's time was over before this; the next Job goes on"
	}
	return "the Job was stopped before this; the next Job goes on"
}

// IsStop reports whether a batch or a sweep was stopped: err is, or wraps, the error of that.
func IsStop(err error) bool {
	_, ok := errors.AsType[*StopError](err)
	return ok
}

// ResultOf is the result of an operation that ended with an error.
func ResultOf(err error) operations.Result {
	if stop, ok := errors.AsType[*StopError](err); ok {
		return operations.Result{State: operations.NotDone, Reason: operations.Stopped, Message: stop.message()}
	}
	if r, ok := AsRefusal(err); ok {
		return r.Result
	}
	reason, advice := classify(err)
	return operations.Result{State: operations.Failed, Reason: reason, Message: err.Error() + ": " + advice}
}

// ChangedNothing reports whether mountjob or the server refused an operation. After any other error it may be done: a
// soft mount gives up waiting for the reply, a rename that is sent again does not find what it has already moved, and
// who has lost the lock does not know what the next one does.
func ChangedNothing(err error) bool {
	_, refused := AsRefusal(err)
	reason, _ := classify(err)
	return !errors.Is(err, ErrLockLost) && (refused || reason != operations.IOError)
}

// IsNoSpace reports whether the server has no space, or no quota, for a step.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func classify(err error) (reason operations.Reason, advice string) {
	switch {
	case IsNoSpace(err):
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

// Quote shortens a path for a message.
func Quote(p string) string { return fmt.Sprintf("%q", operations.Shorten(p, 256)) }

// InParallel calls do for 0 to n-1, from several goroutines, until ctx ends: over NFS each call waits for round trips.
func InParallel(ctx context.Context, workers, n int, do func(i int) error) error {
	errs := make([]error, n)
	var working errgroup.Group
	working.SetLimit(workers)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		working.Go(func() error { errs[i] = do(i); return nil })
	}
	_ = working.Wait() // all errors are wanted, not the first
	return cmp.Or(Stopped(ctx), errors.Join(errs...))
}

// DefaultSweepWorkers hide the round trips of an NFS server from each other.
const DefaultSweepWorkers = 64
