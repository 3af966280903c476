package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// identify opens the state directory of the right file system. On the wrong one it changes
// nothing.
func (f *FileSystem) identify(ctx context.Context, options Options) error {
	expected := append([]string{options.FileSystemID}, options.Aliases...)
	for _, id := range expected {
		if err := operations.CheckIdentity(id); err != nil || id != strings.TrimSpace(id) {
			return fmt.Errorf("the file system id %q cannot be one", operations.Truncate(id, 64))
		}
	}
	if err := f.openState(ctx); err != nil {
		return err
	}
	found, err := f.marker()
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.mark(ctx, options.FileSystemID); err != nil {
			return fmt.Errorf("marking the file system as %s: %w", options.FileSystemID, err)
		}
		found, err = f.marker() // another first user may have been faster
	}
	if err != nil {
		return err
	}
	if !slices.Contains(expected, found) {
		return refuse(operations.WrongFileSystem, "this is the file system %q, not %s; nothing was touched. If it is a restored or replicated copy, say so with --file-system-aliases %s=%s",
			operations.Truncate(found, 64), options.FileSystemID, options.FileSystemID, operations.Truncate(found, 64))
	}
	return nil
}

func (f *FileSystem) openState(ctx context.Context) error {
	name := path.Base(wellknown.StateDirectory)
	state, err := f.enter(ctx, f.root, name, wellknown.StateDirectory)
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.before(ctx, "make "+wellknown.StateDirectory); err != nil {
			return err
		}
		if err := f.root.Mkdir(name, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making %s: %w", wellknown.StateDirectory, err)
		}
		state, err = f.enter(ctx, f.root, name, wellknown.StateDirectory)
	}
	f.state = state
	return err
}

// marker reads which file system this is.
func (f *FileSystem) marker() (string, error) {
	data, err := readFile(f.state, path.Base(wellknown.FileSystemIDFile), wellknown.FileSystemIDFile)
	return strings.TrimSpace(string(data)), err
}

// mark writes the marker unless there is one: a link, unlike a rename, replaces nothing, so
// that of two first users one wins and both agree.
func (f *FileSystem) mark(ctx context.Context, id string) error {
	name := path.Base(wellknown.FileSystemIDFile)
	half := unique(name)
	if err := f.before(ctx, "write "+wellknown.FileSystemIDFile); err != nil {
		return err
	}
	if err := createFile(f.state, half, []byte(id+"\n")); err != nil {
		return err
	}
	err := f.before(ctx, "place "+wellknown.FileSystemIDFile)
	if err == nil {
		err = f.state.Link(half, name)
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, f.state.Remove(half))
}
