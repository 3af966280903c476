package confdir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file of the directory, which may be missing. Its errors name the operation and the path.
type File struct {
	path string
	mode fs.FileMode
	err  error // the name of the tunnel in the path is invalid
}

// Path returns the file's path.
func (f File) Path() string { return f.path }

// Read returns nil if the file does not exist.
func (f File) Read() ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Remove removes the file, if there is one.
func (f File) Remove() error {
	if f.err != nil {
		return f.err
	}
	if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// HasContent reports whether the file exists with this content.
func (f File) HasContent(content []byte) bool {
	old, err := os.ReadFile(f.path)
	return f.err == nil && err == nil && bytes.Equal(old, content)
}

// Write replaces the file by a rename, unless it has the content already: stunnel can restart on a full
// disk.
func (f File) Write(content []byte) error {
	if f.HasContent(content) {
		return nil
	}
	// The leading dot keeps TunnelOf from matching the file. With a constant name, crashes leave one
	// temporary file at most.
	fresh := File{filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".new"), f.mode, f.err}
	if err := fresh.Remove(); err != nil {
		return err
	}
	if err := fresh.create(content); err != nil {
		return err
	}
	return os.Rename(fresh.path, f.path)
}

// create does not follow symbolic links.
func (f File) create(content []byte) error {
	opened, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	_, err = opened.Write(content)
	return errors.Join(err, opened.Close())
}
