// Package fsroot reaches what is on a mounted file system: it opens the right one, holds its lock, and walks paths
// one component at a time. It knows nothing of owners.
//
// # Trust
//
// Tenants write inside their volumes, and a path may lead through what was once theirs. So a
// path is walked one component at a time, through a handle on each directory; a component that
// is a symbolic link, or that was replaced between check and use, ends the operation. os.Root
// alone would follow a link that stays inside the file system, into another tenant's data.
package fsroot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Options identify the expected file system.
type Options struct {
	// FileSystemID is the file system that must be mounted.
	FileSystemID string
	// Aliases are ids that the marker may have, too: the file system is a copy of theirs.
	Aliases []string
	// Used says that volumes are on the file system: one without a marker is another disk, and is not touched.
	Used bool
	// ReadOnly is for surveys, the only work then: nothing is written, not even a missing marker.
	ReadOnly bool
	Hooks    Hooks
}

// FileSystem is an open file system whose marker was checked. Other processes, on other nodes, may have it open, too.
type FileSystem struct {
	Root  *Dir // of the file system
	State *Dir // wellknown.StateDirectory; nil if there is none, and none may be made

	timeMu       sync.Mutex
	serverAnswer time.Time // of the server that was asked for its time; zero until then; guarded by timeMu
	askedAt      time.Time // when that was, by this process's monotonic clock; guarded by timeMu

	Hooks
	hooking sync.Mutex // held during the hooks with a name, which need not be safe for concurrent use
}

// Hooks are for tests, and nil in production.
type Hooks struct {
	// Step is called before every change and before directories and records are read; its error stops the batch or
	// the sweep there.
	Step func(name string) error
	// Space is called before every step that needs space on the server, Source before a clone lists or reads its
	// source; the error stands for the server's answer. Lost is called after every rename between two directories, and
	// its error stands for an answer that never came.
	Space, Source, Lost func(name string) error
	// ServerTime replaces the clock of the server.
	ServerTime func() time.Time
	// Request is called before n requests of a survey, a clone or a removal, by several goroutines at once.
	Request func(n int)
}

// Open opens the file system mounted on dir and makes sure that it is the right one. A file
// system without a marker gets one; on one with another marker nothing is touched.
func Open(ctx context.Context, dir string, options Options) (*FileSystem, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the file system: %w", err)
	}
	f := &FileSystem{Hooks: options.Hooks}
	f.Root = &Dir{Root: root, System: f, Path: "/"}
	if err := f.identify(ctx, options); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close releases the handles of the file system.
func (f *FileSystem) Close() {
	f.State.Close()
	f.Root.Close()
}

// identify opens the state directory of the right file system. On the wrong one it changes nothing.
func (f *FileSystem) identify(ctx context.Context, options Options) (err error) {
	expected := append([]string{options.FileSystemID}, options.Aliases...)
	for _, id := range expected {
		if err := operations.CheckIdentity(id); err != nil || id != strings.TrimSpace(id) {
			return fmt.Errorf("the file system id %q cannot be one", operations.Truncate(id, 64))
		}
	}
	f.State, err = f.openState(ctx, options)
	if err != nil || f.State == nil {
		return err
	}
	name := path.Base(wellknown.FileSystemIDFile)
	marker, _, err := f.State.ReadSmall(name)
	if errors.Is(err, fs.ErrNotExist) && options.Used {
		return refuseUnmarked(options.FileSystemID)
	}
	if errors.Is(err, fs.ErrNotExist) && !options.ReadOnly {
		if err := f.mark(ctx, name, options.FileSystemID); err != nil {
			return fmt.Errorf("marking the file system as %s: %w", options.FileSystemID, err)
		}
		marker, _, err = f.State.ReadSmall(name) // another first user may have been faster
	}
	if err != nil {
		return err
	}
	if found := strings.TrimSpace(string(marker)); !slices.Contains(expected, found) {
		found = operations.Truncate(found, 64)
		return Refuse(operations.WrongFileSystem, "this is the file system %q, not %s; nothing was touched. If it is a restored or replicated copy, say so with --file-system-aliases %s=%s",
			found, options.FileSystemID, options.FileSystemID, found)
	}
	return nil
}

func refuseUnmarked(id string) error {
	return Refuse(operations.WrongFileSystem, "this is not the disk of %s: volumes are on that, and this has no %s; nothing was touched. Give the server its disk back. "+
		"If the disk is lost and this one is to take its place, write the line %s into that file", id, wellknown.FileSystemIDFile, id)
}

// openState makes the state directory if it is missing, and may be.
func (f *FileSystem) openState(ctx context.Context, options Options) (*Dir, error) {
	name := path.Base(wellknown.StateDirectory)
	if !options.ReadOnly && !options.Used {
		return f.Root.Ensure(ctx, name)
	}
	state, err := f.Root.Enter(ctx, name)
	if errors.Is(err, fs.ErrNotExist) && options.Used && !options.ReadOnly {
		err = refuseUnmarked(options.FileSystemID)
	}
	return state, IgnoreMissing(err)
}

// mark writes the marker unless there is one: a link replaces nothing, so of two first users one wins and both agree.
func (f *FileSystem) mark(ctx context.Context, name, id string) error {
	half := Unique(name)
	if err := f.Before(ctx, "write "+f.State.At(name)); err != nil {
		return err
	}
	if err := f.State.CreateWhole(half, []byte(id+"\n")); err != nil {
		return err
	}
	err := f.Before(ctx, "place "+f.State.At(name))
	if err == nil {
		err = f.State.Link(half, name)
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, f.State.Remove(half))
}

// Before is where a batch or a sweep can stop: between two steps, never inside one.
func (f *FileSystem) Before(ctx context.Context, step string) error {
	if err := Stopped(ctx); err != nil {
		return err
	}
	if err := f.Hook(f.Step, step); err != nil {
		return &StopError{Cause: err}
	}
	return nil
}

// Hook calls a hook of tests, one at a time.
func (f *FileSystem) Hook(hook func(step string) error, step string) error {
	if hook == nil {
		return nil
	}
	f.hooking.Lock()
	defer f.hooking.Unlock()
	return hook(step)
}

// HookRequest tells a test of n requests.
func (f *FileSystem) HookRequest(n int) {
	if f.Request != nil {
		f.Request(n)
	}
}

// BeforeGrowing is before, for a step that needs space on the server.
func (f *FileSystem) BeforeGrowing(ctx context.Context, step string) error {
	err := f.Before(ctx, step)
	if err == nil {
		err = f.Hook(f.Space, step)
	}
	return err
}

// ServerNow is the time of the file server, which is asked once. It alone decides what was kept long enough in the
// trash, and which of two owners came later: other clocks may be wrong, and clusters may share a file system.
func (f *FileSystem) ServerNow(ctx context.Context) (time.Time, error) {
	if f.ServerTime != nil {
		return f.ServerTime(), nil
	}
	f.timeMu.Lock()
	defer f.timeMu.Unlock()
	if f.serverAnswer.IsZero() {
		now, err := f.askTime(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("asking the file server for its time, as that of %s: %w", f.State.Path, err)
		}
		f.serverAnswer, f.askedAt = now, time.Now()
	}
	return f.serverAnswer.Add(time.Since(f.askedAt)).UTC(), nil
}

// askTime sets the times of the state directory to the server's (NFSv4: SET_TO_SERVER_TIME4), which needs no space, and
// reads them back.
func (f *FileSystem) askTime(ctx context.Context) (time.Time, error) {
	if err := f.Before(ctx, "ask the server for its time"); err != nil {
		return time.Time{}, err
	}
	state, err := f.State.Open(".")
	if err != nil {
		return time.Time{}, err
	}
	defer state.Close()
	if err := touch(state); err != nil {
		return time.Time{}, err
	}
	info, err := state.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Unique names something that is on its way to its place.
func Unique(what string) string { return what + "-" + rand.Text() }
