package inventory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
)

// Options are the settings of a store besides its file.
type Options struct {
	Zones []Zone
	// AddressType is that of mount targets for which none is asked.
	AddressType AddressType
	NewID       func(prefix string) string // "fs" gives "fs-0123456789abcdef0"
	Now         func() time.Time
}

// Store keeps the inventory in a file. Safe for concurrent use.
type Store struct {
	file    string
	options Options
	mu      sync.Mutex // held by the one writer
	current atomic.Pointer[Snapshot]
}

// Open reads the inventory, or makes the default one when the file is missing.
func Open(file string, options Options) (*Store, error) {
	s := &Store{file: file, options: options}
	snapshot, err := jsonfile.Read[Snapshot](file)
	if errors.Is(err, os.ErrNotExist) {
		return s, s.change(s.addDefaults)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}
	s.current.Store(new(snapshot.clone()))
	return s, nil
}

// Snapshot returns the inventory as it is now.
func (s *Store) Snapshot() Snapshot { return *s.current.Load() }

// Zone finds a zone by its name.
func (s *Store) Zone(name string) (Zone, error) { return FindZone(s.options.Zones, name) }

// change publishes a changed copy of the inventory, once it is on disk.
func (s *Store) change(edit func(next Snapshot) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next Snapshot
	if current := s.current.Load(); current != nil {
		next = *current
	}
	next = next.clone()
	if err := edit(next); err != nil {
		return err
	}
	if err := jsonfile.Write(s.file, next); err != nil {
		return fmt.Errorf("writing the inventory: %w", err)
	}
	s.current.Store(&next)
	return nil
}

// addDefaults adds two file systems with ids that documentation and tests can rely on.
func (s *Store) addDefaults(next Snapshot) error {
	for i, name := range []string{"shared", "archive"} {
		fs := FileSystem{
			ID:            fmt.Sprintf("fs-0123456789abcdef%d", i),
			CreationToken: name,
			CreatedAt:     s.options.Now().UTC().Truncate(time.Second),
			State:         Available,
			Tags:          map[string]string{"Name": name},
		}
		next.FileSystems[fs.ID] = fs
		for j, zone := range s.options.Zones {
			suffix := fmt.Sprintf("0123456789abcde%d%d", i, j)
			t := MountTarget{
				ID: "fsmt-" + suffix, FileSystemID: fs.ID, Zone: zone.Name, SubnetID: zone.SubnetID,
				NetworkInterfaceID: "eni-" + suffix, State: Available,
			}
			if err := s.setAddresses(next, &t, zone, ""); err != nil {
				return err
			}
			next.MountTargets[t.ID] = t
		}
	}
	return nil
}

func (s Snapshot) clone() Snapshot {
	return Snapshot{
		FileSystems:  cloned(s.FileSystems),
		MountTargets: cloned(s.MountTargets),
		AccessPoints: cloned(s.AccessPoints),
		Nodes:        cloned(s.Nodes),
	}
}

// cloned never returns nil, which could not be written to.
func cloned[R any](m map[string]R) map[string]R {
	if m == nil {
		return map[string]R{}
	}
	return maps.Clone(m)
}

// kind is one kind of resource.
type kind[R any] struct {
	name string // in errors
	of   func(Snapshot) map[string]R
}

func fileSystems() kind[FileSystem] {
	return kind[FileSystem]{"file system", func(s Snapshot) map[string]FileSystem { return s.FileSystems }}
}

func mountTargets() kind[MountTarget] {
	return kind[MountTarget]{"mount target", func(s Snapshot) map[string]MountTarget { return s.MountTargets }}
}

func accessPoints() kind[AccessPoint] {
	return kind[AccessPoint]{"access point", func(s Snapshot) map[string]AccessPoint { return s.AccessPoints }}
}

func (k kind[R]) get(s Snapshot, id string) (R, error) {
	resource, ok := k.of(s)[id]
	if !ok {
		return resource, fmt.Errorf("%s %s does not exist", k.name, id)
	}
	return resource, nil
}

func (k kind[R]) update(store *Store, id string, edit func(*R) error) error {
	return store.change(func(next Snapshot) error {
		resource, err := k.get(next, id)
		if err != nil {
			return err
		}
		if err := edit(&resource); err != nil {
			return fmt.Errorf("updating %s %s: %w", k.name, id, err)
		}
		k.of(next)[id] = resource
		return nil
	})
}

func (k kind[R]) remove(store *Store, id string) error {
	return store.change(func(next Snapshot) error {
		_, err := k.get(next, id)
		delete(k.of(next), id)
		return err
	})
}
