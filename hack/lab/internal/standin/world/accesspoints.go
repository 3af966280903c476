package world

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// NewAccessPoint asks for an access point.
type NewAccessPoint struct {
	FileSystemID string        `json:"fileSystemID"`
	Name         string        `json:"name,omitempty"`
	Path         string        `json:"path,omitempty"` // "" = "/"
	PosixUser    *PosixUser    `json:"posixUser,omitempty"`
	CreationInfo *CreationInfo `json:"creationInfo,omitempty"`
	State        State         `json:"state,omitempty"`
}

// CreateAccessPoint adds an entry into a file system.
func (s *Store) CreateAccessPoint(r NewAccessPoint) (AccessPoint, error) {
	p := AccessPoint{
		ID: s.options.NewID("fsap"), FileSystemID: r.FileSystemID, Name: r.Name, Path: r.Path,
		PosixUser: r.PosixUser, CreationInfo: r.CreationInfo, State: r.State,
	}
	p.ClientToken = p.ID
	if p.Path == "" {
		p.Path = "/"
	}
	if p.State == "" {
		p.State = Available
	}
	if err := p.check(); err != nil {
		return AccessPoint{}, fmt.Errorf("creating access point: %w", err)
	}
	return p, s.change(func(w *World) error {
		if _, err := w.fileSystem(p.FileSystemID); err != nil {
			return fmt.Errorf("creating access point: %w", err)
		}
		w.AccessPoints[p.ID] = p
		return nil
	})
}

// The limits of an access point's path, as EFS documents them.
const (
	maxPathLength = 100
	maxPathDepth  = 4
)

func (p AccessPoint) check() error {
	if err := p.State.check(); err != nil {
		return err
	}
	if !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path {
		return fmt.Errorf("path %q: want an absolute path without empty, . or .. parts: %w", p.Path, ErrInvalid)
	}
	if depth := strings.Count(p.Path, "/"); len(p.Path) > maxPathLength || depth > maxPathDepth {
		return fmt.Errorf("path %q: want at most %d characters and %d directories: %w", p.Path, maxPathLength, maxPathDepth, ErrInvalid)
	}
	if p.CreationInfo == nil {
		return nil
	}
	if mode, err := strconv.ParseUint(p.CreationInfo.Permissions, 8, 16); err != nil || mode > 0o7777 {
		return fmt.Errorf("permissions %q: want an octal mode such as 0755: %w", p.CreationInfo.Permissions, ErrInvalid)
	}
	return nil
}

// SetAccessPointState changes an access point's life-cycle state; only an
// available one lets new connections in.
func (s *Store) SetAccessPointState(id string, state State) error {
	if err := state.check(); err != nil {
		return fmt.Errorf("updating access point %s: %w", id, err)
	}
	return s.change(func(w *World) error {
		p, ok := w.AccessPoints[id]
		if !ok {
			return fmt.Errorf("updating access point %s: %w", id, ErrNotFound)
		}
		p.State = state
		w.AccessPoints[id] = p
		return nil
	})
}

// DeleteAccessPoint removes an access point; its directory and data stay.
func (s *Store) DeleteAccessPoint(id string) error {
	return s.change(func(w *World) error {
		if _, ok := w.AccessPoints[id]; !ok {
			return fmt.Errorf("deleting access point %s: %w", id, ErrNotFound)
		}
		delete(w.AccessPoints, id)
		return nil
	})
}
