package efsapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Kind is a way in which the API misbehaves.
type Kind string

// The ways in which the API can misbehave.
const (
	Throttle     Kind = "throttle"      // ThrottlingException
	ServerError  Kind = "server-error"  // HTTP 500
	AccessDenied Kind = "access-denied" // AccessDeniedException
	Empty        Kind = "empty"         // success that lists nothing
	Hang         Kind = "hang"          // no answer until the client gives up
	PageSize     Kind = "page-size"     // at most Size entries per page
)

// Kinds lists all ways in which the API can misbehave.
func Kinds() []Kind { return []Kind{Throttle, ServerError, AccessDenied, Empty, Hang, PageSize} }

// ErrFault is wrapped by refusals of faults that make no sense.
var ErrFault = errors.New("invalid fault")

// Fault is one way to misbehave. Without Next and Rate it concerns every call.
type Fault struct {
	Kind      Kind    `json:"kind"`
	Operation string  `json:"operation,omitempty"` // "" = all
	Next      int     `json:"next,omitempty"`      // the next calls only
	Rate      float64 `json:"rate,omitempty"`      // fraction of calls, evenly spread: 0.25 is every fourth
	Size      int     `json:"size,omitempty"`      // of a page
}

func (f Fault) check() error {
	switch {
	case !slices.Contains(Kinds(), f.Kind):
		return fmt.Errorf("kind %q: want one of %s: %w", f.Kind, join(Kinds()), ErrFault)
	case f.Operation != "" && !slices.Contains(Operations(), f.Operation):
		return fmt.Errorf("operation %q: want one of %s: %w", f.Operation, join(Operations()), ErrFault)
	case f.Kind == PageSize && f.Size < 1:
		return fmt.Errorf("page size %d: want at least 1: %w", f.Size, ErrFault)
	case f.Kind != PageSize && f.Size != 0:
		return fmt.Errorf("size %d: only %s has a size: %w", f.Size, PageSize, ErrFault)
	case f.Kind == PageSize && (f.Next != 0 || f.Rate != 0):
		return fmt.Errorf("%s: it holds until cleared, without next or rate: %w", f.Kind, ErrFault)
	case f.Next < 0:
		return fmt.Errorf("next %d: want at least 1: %w", f.Next, ErrFault)
	case f.Rate < 0 || f.Rate > 1:
		return fmt.Errorf("rate %g: want a fraction from 0 to 1: %w", f.Rate, ErrFault)
	case f.Next > 0 && f.Rate > 0:
		return fmt.Errorf("next %d and rate %g: want one of them: %w", f.Next, f.Rate, ErrFault)
	}
	return nil
}

func join[S ~string](list []S) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	return strings.Join(names, ", ")
}

// Faults are those in force. The zero value has none; safe for concurrent use.
type Faults struct {
	mu   sync.Mutex
	list []*armed // guarded by mu
}

type armed struct {
	Fault
	debt float64 // of Rate: a call is hit each time it reaches 1
}

// Set puts a fault in force, in place of one of the same kind and operation.
func (f *Faults) Set(fault Fault) error {
	if err := fault.check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(a *armed) bool { return a.Kind == fault.Kind && a.Operation == fault.Operation })
	f.list = append(f.list, &armed{Fault: fault})
	return nil
}

// Clear ends all faults. Calls that hang go on hanging.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// List shows the faults in force, with what is left of their counts.
func (f *Faults) List() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Fault, 0, len(f.list))
	for _, a := range f.list {
		list = append(list, a.Fault)
	}
	return list
}

// effect is what happens to one call.
type effect struct {
	kind     Kind // "" = it is answered well
	pageSize int  // 0 = the API's own
}

// next decides about one call and counts it. The first fault that hits wins.
func (f *Faults) next(operation string) effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	var e effect
	for _, a := range f.list {
		if a.Operation != "" && a.Operation != operation {
			continue
		}
		if a.Kind == PageSize {
			e.pageSize = a.Size
			continue
		}
		if e.kind == "" && a.hits() {
			e.kind = a.Kind
		}
	}
	f.list = slices.DeleteFunc(f.list, func(a *armed) bool { return a.Next < 0 })
	return e
}

// spent marks a fault whose count is used up; 0 would mean every call.
const spent = -1

// rounding forgives what ten tenths lack to one.
const rounding = 1e-9

func (a *armed) hits() bool {
	switch {
	case a.Next > 0:
		if a.Next--; a.Next == 0 {
			a.Next = spent
		}
		return true
	case a.Rate > 0:
		a.debt += a.Rate
		if a.debt < 1-rounding {
			return false
		}
		a.debt--
		return true
	}
	return true
}
