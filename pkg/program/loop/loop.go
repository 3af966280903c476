// Package loop has what the loops of programs share. It links nothing but the standard library.
package loop

import (
	"context"
	"time"
)

// Pause waits for a time. It returns false, and at once, if the context ends before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// LastError is the text of the error of a loop's latest pass, which is logged once, though each pass meets it again. The
// zero LastError is none.
type LastError string

// Update keeps the error of a pass, nil for none. It reports whether there is one that differs from the one before, and
// whether there was one and is none any more.
func (l *LastError) Update(err error) (isNew, ended bool) {
	before := *l
	*l = ""
	if err != nil {
		*l = LastError(err.Error())
	}
	return err != nil && *l != before, err == nil && before != ""
}

// IsNew is Update for those who do not report the end.
func (l *LastError) IsNew(err error) bool {
	isNew, _ := l.Update(err)
	return isNew
}

// Wake requests a pass of a loop, which receives from it. It holds at most one request: those that come together cause
// one pass.
type Wake chan struct{}

// NewWake makes a Wake without a request.
func NewWake() Wake { return make(Wake, 1) }

// Request never blocks.
func (w Wake) Request() {
	select {
	case w <- struct{}{}:
	default: // it is requested already
	}
}
