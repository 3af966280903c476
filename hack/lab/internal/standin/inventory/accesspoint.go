package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"
)

// NewAccessPoint asks for an access point.
type NewAccessPoint struct {
	FileSystemID string            `json:"fileSystemID"`
	ClientToken  string            `json:"clientToken,omitempty"` // "" = the id
	Name         string            `json:"name,omitempty"`        // shorthand for the tag Name
	Tags         map[string]string `json:"tags,omitempty"`
	Path         string            `json:"path,omitempty"` // "" = "/"
	PosixUser    *PosixUser        `json:"posixUser,omitempty"`
	CreationInfo *CreationInfo     `json:"creationInfo,omitempty"`
	State        State             `json:"state,omitempty"` // "" = available
}

// The limits of access points, as EFS documents them.
const (
	MaxAccessPoints = 10_000 // of a file system
	MaxTags         = 50     // of a resource
	maxPathLength   = 100
	maxPathDepth    = 4
)

// Errors of CreateAccessPoint that the API has codes for.
var (
	ErrTokenUsed           = errors.New("another access point has the client token")
	ErrTooManyAccessPoints = fmt.Errorf("the file system has %d access points", MaxAccessPoints)
)

// CreateAccessPoint adds an access point to a file system. With ErrTokenUsed it returns the one that is there.
func (s *Store) CreateAccessPoint(r NewAccessPoint) (AccessPoint, error) {
	p := AccessPoint{
		ID: s.options.NewID("fsap"), FileSystemID: r.FileSystemID, Path: cmp.Or(r.Path, "/"), Tags: cloned(r.Tags),
		PosixUser: r.PosixUser, CreationInfo: r.CreationInfo, State: cmp.Or(r.State, Available),
	}
	p.ClientToken = cmp.Or(r.ClientToken, p.ID)
	if r.Name != "" {
		p.Tags["Name"] = r.Name
	}
	if err := p.check(); err != nil {
		return AccessPoint{}, fmt.Errorf("creating access point: %w", err)
	}
	err := s.change(func(next Snapshot) error {
		if _, err := fileSystems().get(next, p.FileSystemID); err != nil {
			return err
		}
		for _, other := range next.AccessPoints {
			if other.ClientToken == p.ClientToken {
				p = other
				return ErrTokenUsed
			}
		}
		if len(next.AccessPointsOf(p.FileSystemID)) >= MaxAccessPoints {
			return ErrTooManyAccessPoints
		}
		next.AccessPoints[p.ID] = p
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("creating access point: %w", err)
	}
	return p, nil
}

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
	if len(p.Tags) > MaxTags {
		return fmt.Errorf("%d tags: want at most %d", len(p.Tags), MaxTags)
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

// TagAccessPoint adds tags to an access point, or changes their values.
func (s *Store) TagAccessPoint(id string, tags map[string]string) error {
	return accessPoints().update(s, id, func(p *AccessPoint) error {
		p.Tags = cloned(p.Tags)
		maps.Copy(p.Tags, tags)
		return p.check()
	})
}

// DeleteAccessPoint removes an access point. Its directory and data stay.
func (s *Store) DeleteAccessPoint(id string) error { return accessPoints().remove(s, id) }
