package terminator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// Spec is a mount target that should exist.
type Spec struct{ ID, FileSystemID, Address string }

// Set holds all mount targets. Safe for concurrent use.
type Set struct {
	Certificates *Certificates
	Verifier     mountauth.Verifier
	Route        Router
	Log          *slog.Logger

	mu      sync.Mutex
	targets map[string]*Target // guarded by mu
}

// Apply starts and stops mount targets until the wanted ones run. Those that are kept keep their
// modes and connections.
func (s *Set) Apply(ctx context.Context, wanted []Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets == nil {
		s.targets = map[string]*Target{}
	}
	for id, t := range s.targets {
		if !slices.Contains(wanted, Spec{t.ID, t.FileSystemID, t.Address}) {
			t.Stop()
			delete(s.targets, id)
			s.Log.Info("mount target stopped", "mountTarget", id)
		}
	}
	var failures []error
	for _, spec := range wanted {
		if s.targets[spec.ID] != nil {
			continue
		}
		t := &Target{
			ID: spec.ID, FileSystemID: spec.FileSystemID, Address: spec.Address,
			Certificates: s.Certificates, Verifier: s.Verifier, Route: s.Route, Log: s.Log,
		}
		if err := t.Start(ctx); err != nil {
			failures = append(failures, err)
			continue
		}
		s.targets[spec.ID] = t
		s.Log.Info("mount target started", "mountTarget", spec.ID, "fileSystem", spec.FileSystemID, "address", spec.Address)
	}
	return errors.Join(failures...)
}

// Get finds a mount target.
func (s *Set) Get(id string) (*Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.targets[id]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("mount target %s does not run", id)
}

// Clear sets all mount targets to mode ok with a valid certificate, without a delay and for TLS only.
func (s *Set) Clear(ctx context.Context) error {
	var failures []error
	for _, t := range s.all() {
		t.SetPlain(false)
		failures = append(failures, t.SetCertificate(GoodCertificate), t.SetDelay(0), t.SetRate(0), t.SetMode(ctx, OK))
	}
	return errors.Join(failures...)
}

// Status reports what all mount targets are doing, sorted by address.
func (s *Set) Status() []Status {
	list := []Status{}
	for _, t := range s.all() {
		list = append(list, t.Status())
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.FileSystemID, b.FileSystemID), cmp.Compare(a.Address, b.Address))
	})
	return list
}

func (s *Set) all() []*Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.targets))
}
