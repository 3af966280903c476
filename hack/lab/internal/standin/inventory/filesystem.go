package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"time"
)

// NewFileSystem asks for a file system.
type NewFileSystem struct {
	ID    string            `json:"id,omitempty"`   // "" = random
	Name  string            `json:"name,omitempty"` // the Name tag
	Tags  map[string]string `json:"tags,omitempty"`
	Zone  string            `json:"zone,omitempty"`  // zone name: makes it One Zone
	State State             `json:"state,omitempty"` // "" = available
}

// CreateFileSystem adds a file system without mount targets.
func (s *Store) CreateFileSystem(r NewFileSystem) (FileSystem, error) {
	fs := FileSystem{
		ID: cmp.Or(r.ID, s.options.NewID("fs")), Zone: r.Zone, State: cmp.Or(r.State, Available),
		CreatedAt: s.options.Now().UTC().Truncate(time.Second),
		Tags:      cloned(r.Tags),
	}
	fs.CreationToken = fs.ID
	if r.Name != "" {
		fs.Tags["Name"] = r.Name
	}
	if err := s.checkFileSystem(fs); err != nil {
		return FileSystem{}, fmt.Errorf("creating file system: %w", err)
	}
	return fs, s.change(func(next Snapshot) error {
		if _, ok := next.FileSystems[fs.ID]; ok {
			return fmt.Errorf("creating file system: %s exists already", fs.ID)
		}
		next.FileSystems[fs.ID] = fs
		return nil
	})
}

func (s *Store) checkFileSystem(fs FileSystem) error {
	if err := checkID("fs", fs.ID); err != nil {
		return err
	}
	if fs.Zone != "" {
		if _, err := s.Zone(fs.Zone); err != nil {
			return err
		}
	}
	return fs.State.check()
}

// FileSystemChange sets what is not nil or "".
type FileSystemChange struct {
	State       State             `json:"state,omitempty"`
	Replicating *bool             `json:"replicating,omitempty"`
	RequireIAM  *bool             `json:"requireIAM,omitempty"` // applies to new connections
	Tags        map[string]string `json:"tags,omitempty"`       // added; an empty value removes the tag
}

// UpdateFileSystem changes a file system.
func (s *Store) UpdateFileSystem(id string, c FileSystemChange) error {
	return fileSystems().update(s, id, func(fs *FileSystem) error {
		fs.State = cmp.Or(c.State, fs.State)
		if c.Replicating != nil {
			fs.Replicating = *c.Replicating
		}
		if c.RequireIAM != nil {
			fs.RequireIAM = *c.RequireIAM
		}
		fs.Tags = cloned(fs.Tags)
		maps.Copy(fs.Tags, c.Tags)
		maps.DeleteFunc(fs.Tags, func(_, value string) bool { return value == "" })
		return s.checkFileSystem(*fs)
	})
}

// DeleteFileSystem removes a file system and its access points. Like EFS it refuses to while the
// file system has mount targets, unless cascade removes those, too.
func (s *Store) DeleteFileSystem(id string, cascade bool) error {
	return s.change(func(next Snapshot) error {
		if _, err := fileSystems().get(next, id); err != nil {
			return err
		}
		if targets := next.MountTargetsOf(id); len(targets) > 0 && !cascade {
			return fmt.Errorf("deleting file system %s: it has %d mount targets: delete those first, or cascade", id, len(targets))
		}
		delete(next.FileSystems, id)
		maps.DeleteFunc(next.MountTargets, func(_ string, t MountTarget) bool { return t.FileSystemID == id })
		maps.DeleteFunc(next.AccessPoints, func(_ string, p AccessPoint) bool { return p.FileSystemID == id })
		return nil
	})
}
