package usage

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"
)

// A server that does not answer would have each volume wait for it in turn.
func TestSurveyEndsIfTheServerDoesNotAnswer(t *testing.T) {
	for _, err := range []error{syscall.EIO, syscall.ETIMEDOUT} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &count{survey: &survey{cancel: cancel}}
		c.fail(&fs.PathError{Op: "lstat", Path: "file", Err: err})
		if got := context.Cause(ctx); !errors.Is(got, err) {
			t.Errorf("the survey ended with %v", got)
		}
	}
	for err, incomplete := range map[error]bool{
		syscall.ENOENT: false, syscall.ESTALE: false, syscall.ENOTDIR: false, syscall.ELOOP: false, syscall.EACCES: true,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &count{survey: &survey{cancel: cancel}}
		c.fail(&fs.PathError{Op: "lstat", Path: "file", Err: err})
		if ctx.Err() != nil || (c.incomplete != "") != incomplete {
			t.Errorf("%v: incomplete %q, survey %v", err, c.incomplete, ctx.Err())
		}
		cancel(nil)
	}
}
