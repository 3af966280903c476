package efsapi

import (
	"fmt"
	"slices"
	"sync"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
)

// Kind is a way in which the API fails.
type Kind string

// The ways in which the API can fail.
const (
	Throttle     Kind = "throttle"      // ThrottlingException
	ServerError  Kind = "server-error"  // HTTP 500
	AccessDenied Kind = "access-denied" // AccessDeniedException
	Empty        Kind = "empty"         // success that lists nothing
	Hang         Kind = "hang"          // no answer until the client gives up
	PageSize     Kind = "page-size"     // at most Size entries per page
)

// Kinds lists all ways in which the API can fail.
func Kinds() []Kind { return []Kind{Throttle, ServerError, AccessDenied, Empty, Hang, PageSize} }

// Fault is one way to fail. Without Next and Rate it applies to every call.
type Fault struct {
	Kind      Kind    `json:"kind"`
	Operation string  `json:"operation,omitempty"` // "" = all
	Next      int     `json:"next,omitempty"`      // the next calls only
	Rate      float64 `json:"rate,omitempty"`      // fraction of calls, evenly spread: 0.25 is every fourth
	Size      int     `json:"size,omitempty"`      // of a page
}

func (f Fault) check() error {
	if err := oneof.Check("kind", f.Kind, Kinds()); err != nil {
		return err
	}
	switch {
	case f.Operation != "" && !slices.Contains(Operations(), f.Operation):
		return oneof.Check("operation", f.Operation, Operations())
	case f.Kind == PageSize && f.Size < 1:
		return fmt.Errorf("page size %d: want at least 1", f.Size)
	case f.Kind != PageSize && f.Size != 0:
		return fmt.Errorf("size %d: only %s has a size", f.Size, PageSize)
	case f.Kind == PageSize && (f.Next != 0 || f.Rate != 0):
		return fmt.Errorf("%s: takes no next or rate, it applies until cleared", f.Kind)
	case f.Next < 0:
		return fmt.Errorf("next %d: want at least 1", f.Next)
	case f.Rate < 0 || f.Rate > 1:
		return fmt.Errorf("rate %g: want a fraction from 0 to 1", f.Rate)
	case f.Next > 0 && f.Rate > 0:
		return fmt.Errorf("next %d and rate %g: want one of them", f.Next, f.Rate)
	}
	return nil
}

// Faults are the active faults. The zero value has none; safe for concurrent use.
type Faults struct {
	mu   sync.Mutex
	list []*active // guarded by mu
}

type active struct {
	Fault
	sum float64 // of Rate over the calls: each time it reaches 1, a call fails
}

// Set activates a fault, in place of one of the same kind and operation.
func (f *Faults) Set(fault Fault) error {
	if err := fault.check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(a *active) bool { return a.Kind == fault.Kind && a.Operation == fault.Operation })
	f.list = append(f.list, &active{Fault: fault})
	return nil
}

// Clear ends all faults. Calls that hang already continue to hang.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// List returns the active faults, with what is left of their counts.
func (f *Faults) List() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Fault, 0, len(f.list))
	for _, a := range f.list {
		list = append(list, a.Fault)
	}
	return list
}

// effect is the effect of the faults on one call.
type effect struct {
	kind     Kind // "" = it is answered correctly
	pageSize int  // 0 = the API's own
}

// next decides about one call and counts it. The first fault that applies wins.
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
		if e.kind == "" && a.applies() {
			e.kind = a.Kind
		}
	}
	f.list = slices.DeleteFunc(f.list, func(a *active) bool { return a.Next == usedUp })
	return e
}

// usedUp marks a fault whose count is used up; 0 would mean every call.
const usedUp = -1

// rounding is more than ten tenths differ from one.
const rounding = 1e-9

func (a *active) applies() bool {
	switch {
	case a.Next > 0:
		if a.Next--; a.Next == 0 {
			a.Next = usedUp
		}
	case a.Rate > 0:
		a.sum += a.Rate
		if a.sum < 1-rounding {
			return false
		}
		a.sum--
	}
	return true
}
