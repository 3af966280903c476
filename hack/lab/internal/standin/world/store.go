package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are what a store needs besides its file.
type Options struct {
	Zones []Zone
	NewID func(prefix string) string // "fs" gives "fs-0123456789abcdef0"
	Now   func() time.Time
}

// Store keeps the world in a file. Safe for concurrent use.
type Store struct {
	file    string
	options Options
	mu      sync.Mutex // held by the one writer
	current atomic.Pointer[World]
}

// Open reads the world, or makes the default one when the file is missing.
func Open(file string, options Options) (*Store, error) {
	s := &Store{file: file, options: options}
	w, err := read(file)
	if errors.Is(err, os.ErrNotExist) {
		w, err = s.firstWorld()
	}
	if err != nil {
		return nil, err
	}
	s.current.Store(w)
	return s, nil
}

// Snapshot is the world as it is now.
func (s *Store) Snapshot() World { return *s.current.Load() }

// Zones lists the zones of the region.
func (s *Store) Zones() []Zone { return slices.Clone(s.options.Zones) }

// Zone finds a zone by its name.
func (s *Store) Zone(name string) (Zone, bool) {
	for _, z := range s.options.Zones {
		if z.Name == name {
			return z, true
		}
	}
	return Zone{}, false
}

// change publishes a changed copy of the world, once it is on disk.
func (s *Store) change(edit func(w *World) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.current.Load().clone()
	if err := edit(&next); err != nil {
		return err
	}
	if err := write(s.file, next); err != nil {
		return err
	}
	s.current.Store(&next)
	return nil
}

// firstWorld has ids that documentation and tests can rely on.
func (s *Store) firstWorld() (*World, error) {
	w := World{}.clone()
	for i, name := range []string{"shared", "archive"} {
		fs := FileSystem{
			ID:            fmt.Sprintf("fs-0123456789abcdef%d", i),
			CreationToken: name,
			CreatedAt:     s.options.Now().UTC().Truncate(time.Second),
			State:         Available,
			Tags:          map[string]string{"Name": name},
		}
		w.FileSystems[fs.ID] = fs
		for j, zone := range s.options.Zones {
			suffix := fmt.Sprintf("0123456789abcde%d%d", i, j)
			address, err := freeAddress(w, zone)
			if err != nil {
				return nil, err
			}
			w.MountTargets["fsmt-"+suffix] = MountTarget{
				ID: "fsmt-" + suffix, FileSystemID: fs.ID, Zone: zone.Name, SubnetID: zone.SubnetID,
				NetworkInterfaceID: "eni-" + suffix, Address: address, State: Available,
			}
		}
	}
	return &w, write(s.file, w)
}

func (w World) clone() World {
	return World{
		FileSystems:  cloned(w.FileSystems),
		MountTargets: cloned(w.MountTargets),
		AccessPoints: cloned(w.AccessPoints),
		Nodes:        cloned(w.Nodes),
	}
}

// cloned never gives nil, which could not be written to.
func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

func read(file string) (*World, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the world: %w", err)
	}
	var w World
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("reading the world from %s: %w", file, err)
	}
	w = w.clone()
	return &w, nil
}

// write replaces the file in one step: a crash leaves the old or the new one.
func write(file string, w World) error {
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the world: %w", err)
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the world: %w", err)
	}
	if err := os.Rename(tmp, file); err != nil {
		return fmt.Errorf("writing the world: %w", err)
	}
	return nil
}
