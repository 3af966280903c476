package world

import (
	"fmt"
	"maps"
	"time"
)

// NewFileSystem asks for a file system.
type NewFileSystem struct {
	ID            string            `json:"id,omitempty"`            // "" = random
	CreationToken string            `json:"creationToken,omitempty"` // "" = the id
	Name          string            `json:"name,omitempty"`          // the Name tag
	Tags          map[string]string `json:"tags,omitempty"`
	Zone          string            `json:"zone,omitempty"` // zone name: makes it One Zone
	State         State             `json:"state,omitempty"`
}

// CreateFileSystem adds a file system without mount targets.
func (s *Store) CreateFileSystem(r NewFileSystem) (FileSystem, error) {
	fs := FileSystem{
		ID: r.ID, CreationToken: r.CreationToken, Zone: r.Zone, State: r.State,
		CreatedAt: s.options.Now().UTC().Truncate(time.Second),
		Tags:      cloned(r.Tags),
	}
	if fs.ID == "" {
		fs.ID = s.options.NewID("fs")
	}
	if fs.CreationToken == "" {
		fs.CreationToken = fs.ID
	}
	if fs.State == "" {
		fs.State = Available
	}
	if r.Name != "" {
		fs.Tags["Name"] = r.Name
	}
	if err := s.checkFileSystem(fs); err != nil {
		return FileSystem{}, fmt.Errorf("creating file system: %w", err)
	}
	return fs, s.change(func(w *World) error {
		for _, other := range w.FileSystems {
			if other.ID == fs.ID || other.CreationToken == fs.CreationToken {
				return fmt.Errorf("creating file system: %s with creation token %q exists already: %w", other.ID, other.CreationToken, ErrConflict)
			}
		}
		w.FileSystems[fs.ID] = fs
		return nil
	})
}

func (s *Store) checkFileSystem(fs FileSystem) error {
	if err := checkID("fs", fs.ID); err != nil {
		return err
	}
	if fs.Zone != "" {
		if _, err := s.zone(fs.Zone); err != nil {
			return err
		}
	}
	return fs.State.check()
}

// FileSystemChange sets what is not nil.
type FileSystemChange struct {
	State       *State            `json:"state,omitempty"`
	Replicating *bool             `json:"replicating,omitempty"`
	RequireIAM  *bool             `json:"requireIAM,omitempty"` // concerns new connections
	Tags        map[string]string `json:"tags,omitempty"`       // added; an empty value removes the tag
}

// UpdateFileSystem changes a file system.
func (s *Store) UpdateFileSystem(id string, c FileSystemChange) error {
	return s.change(func(w *World) error {
		fs, err := w.fileSystem(id)
		if err != nil {
			return fmt.Errorf("updating file system: %w", err)
		}
		if c.State != nil {
			fs.State = *c.State
		}
		if c.Replicating != nil {
			fs.Replicating = *c.Replicating
		}
		if c.RequireIAM != nil {
			fs.RequireIAM = *c.RequireIAM
		}
		fs.Tags = cloned(fs.Tags)
		maps.Copy(fs.Tags, c.Tags)
		maps.DeleteFunc(fs.Tags, func(_, value string) bool { return value == "" })
		if err := s.checkFileSystem(fs); err != nil {
			return fmt.Errorf("updating file system %s: %w", id, err)
		}
		w.FileSystems[id] = fs
		return nil
	})
}

// DeleteFileSystem removes a file system; like EFS it refuses one that has
// mount targets, unless cascade removes those too. Access points go with it.
func (s *Store) DeleteFileSystem(id string, cascade bool) error {
	return s.change(func(w *World) error {
		if _, err := w.fileSystem(id); err != nil {
			return fmt.Errorf("deleting file system: %w", err)
		}
		if targets := w.MountTargetsOf(id); len(targets) > 0 && !cascade {
			return fmt.Errorf("deleting file system %s: it has %d mount targets, delete those first or cascade: %w", id, len(targets), ErrConflict)
		}
		delete(w.FileSystems, id)
		maps.DeleteFunc(w.MountTargets, func(_ string, t MountTarget) bool { return t.FileSystemID == id })
		maps.DeleteFunc(w.AccessPoints, func(_ string, p AccessPoint) bool { return p.FileSystemID == id })
		return nil
	})
}

func (w World) fileSystem(id string) (FileSystem, error) {
	fs, ok := w.FileSystems[id]
	if !ok {
		return FileSystem{}, fmt.Errorf("file system %s: %w", id, ErrNotFound)
	}
	return fs, nil
}
