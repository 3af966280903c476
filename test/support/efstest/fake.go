// Package efstest plays the EFS API in memory, for tests of what polls it.
package efstest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Fake is the EFS API of a region, with the failures that a test sets. Its methods may be called
// concurrently.
type Fake struct {
	mu           sync.Mutex
	fileSystems  map[string]efs.FileSystem // guarded by mu, like all that follow
	accessPoints map[string]efs.AccessPoint
	pointsError  error
	intercept    func(call Call) error
	hidden       map[string]bool
	targetErrors map[string]error
	existsErrors map[string]error
	listError    error
	truncated    bool
	source       string
	lastRead     time.Time
	calls        Calls
}

// Calls counts what was asked of the fake.
type Calls struct {
	List   int
	Exists int
	Points int // about access points
	// Created, Deleted and Found count the calls that made, deleted and described one access point.
	Created, Deleted, Found int
}

// New returns a region with these file systems.
func New(fileSystems ...efs.FileSystem) *Fake {
	f := &Fake{
		fileSystems:  map[string]efs.FileSystem{},
		accessPoints: map[string]efs.AccessPoint{},
		hidden:       map[string]bool{},
		targetErrors: map[string]error{},
		existsErrors: map[string]error{},
	}
	for _, fs := range fileSystems {
		f.Put(fs)
	}
	return f
}

func (f *Fake) locked(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Put creates a file system or replaces it.
func (f *Fake) Put(fs efs.FileSystem) { f.locked(func() { f.fileSystems[fs.ID] = copyOf(fs) }) }

// copyOf shares nothing with the original, which a test may change.
func copyOf(fs efs.FileSystem) efs.FileSystem {
	fs.Tags, fs.MountTargets = maps.Clone(fs.Tags), slices.Clone(fs.MountTargets)
	return fs
}

// Remove deletes a file system for good.
func (f *Fake) Remove(id string) { f.locked(func() { delete(f.fileSystems, id) }) }

// Hide makes listings leave out a file system that exists, or list it again.
func (f *Fake) Hide(id string, hidden bool) { f.locked(func() { setOrDelete(f.hidden, id, hidden) }) }

// Truncate makes listings end after their first half, with no error, until it is set to false.
func (f *Fake) Truncate(truncated bool) { f.locked(func() { f.truncated = truncated }) }

// SetSource sets the account and the region of listings; they have none at first.
func (f *Fake) SetSource(source string) { f.locked(func() { f.source = source }) }

// FailList makes ListFileSystems fail until it is set to nil.
func (f *Fake) FailList(err error) { f.locked(func() { f.listError = err }) }

// FailMountTargets makes the reading of one file system's mount targets fail until it is set to nil.
func (f *Fake) FailMountTargets(id string, err error) {
	f.locked(func() { setOrDelete(f.targetErrors, id, err) })
}

// FailExists makes FileSystemExists fail for one file system until it is set to nil.
func (f *Fake) FailExists(id string, err error) {
	f.locked(func() { setOrDelete(f.existsErrors, id, err) })
}

// Calls returns what was asked so far.
func (f *Fake) Calls() Calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// ListFileSystems polls the region. Its file systems are in order of id, which the real API
// does not promise.
func (f *Fake) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.List++
	if err := ctx.Err(); err != nil {
		return efs.Listing{}, err
	}
	if f.listError != nil {
		return efs.Listing{}, f.listError
	}
	listing := efs.Listing{ReadAt: f.tick(), Source: f.source}
	for _, id := range f.listed() {
		fs := copyOf(f.fileSystems[id])
		if err := f.targetErrors[id]; err != nil {
			fs.MountTargets = nil
			if listing.Failed == nil {
				listing.Failed = map[string]error{}
			}
			listing.Failed[id] = err
		}
		listing.FileSystems = append(listing.FileSystems, fs)
	}
	listing.Complete = !f.truncated && len(listing.Failed) == 0
	return listing, nil
}

// FileSystemExists requests one file system.
func (f *Fake) FileSystemExists(ctx context.Context, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls.Exists++
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := f.existsErrors[id]; err != nil {
		return false, err
	}
	_, exists := f.fileSystems[id]
	return exists, nil
}

// listed returns the ids that a listing shows. The caller holds mu.
func (f *Fake) listed() []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(f.fileSystems)) {
		if !f.hidden[id] {
			ids = append(ids, id)
		}
	}
	if f.truncated {
		ids = ids[:len(ids)/2]
	}
	return ids
}

// tick returns the time, later at each call: two polls are never one. The caller holds mu.
func (f *Fake) tick() time.Time {
	now := time.Now()
	if !now.After(f.lastRead) {
		now = f.lastRead.Add(time.Nanosecond)
	}
	f.lastRead = now
	return now
}

// setOrDelete keeps only entries that say something.
func setOrDelete[V comparable](m map[string]V, key string, value V) {
	var zero V
	if value == zero {
		delete(m, key)
		return
	}
	m[key] = value
}
