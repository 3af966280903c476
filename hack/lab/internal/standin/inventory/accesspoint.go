package inventory

import (
	"cmp"
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
	State        State         `json:"state,omitempty"` // "" = available
}

// CreateAccessPoint adds an access point to a file system.
func (s *Store) CreateAccessPoint(r NewAccessPoint) (AccessPoint, error) {
	p := AccessPoint{
		ID: s.options.NewID("fsap"), FileSystemID: r.FileSystemID, Name: r.Name, Path: cmp.Or(r.Path, "/"),
		PosixUser: r.PosixUser, CreationInfo: r.CreationInfo, State: cmp.Or(r.State, Available),
	}
	p.ClientToken = p.ID
	if err := p.check(); err != nil {
		return AccessPoint{}, fmt.Errorf("creating access point: %w", err)
	}
	return p, s.change(func(next Snapshot) error {
		if _, err := fileSystems().get(next, p.FileSystemID); err != nil {
			return fmt.Errorf("creating access point: %w", err)
		}
		next.AccessPoints[p.ID] = p
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
		return fmt.Errorf("path %q: want an absolute path without empty, . or .. parts", p.Path)
	}
	if depth := strings.Count(p.Path, "/"); len(p.Path) > maxPathLength || depth > maxPathDepth {
		return fmt.Errorf("path %q: want at most %d characters and %d directories", p.Path, maxPathLength, maxPathDepth)
	}
	if p.CreationInfo == nil {
		return nil
	}
	if mode, err := strconv.ParseUint(p.CreationInfo.Permissions, 8, 16); err != nil || mode > 0o7777 {
		return fmt.Errorf("permissions %q: want an octal mode such as 0755", p.CreationInfo.Permissions)
	}
	return nil
}

// SetAccessPointState changes an access point's life-cycle state. Only an available one accepts new
// connections.
func (s *Store) SetAccessPointState(id string, state State) error {
	return accessPoints().update(s, id, func(p *AccessPoint) error {
		p.State = state
		return state.check()
	})
}

// DeleteAccessPoint removes an access point. Its directory and data stay.
func (s *Store) DeleteAccessPoint(id string) error { return accessPoints().remove(s, id) }
