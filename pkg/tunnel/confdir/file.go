package confdir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// file is a file of the directory. Its errors name the operation and the path.
type file struct {
	path string
	mode fs.FileMode
	err  error // the name of the tunnel in the path is invalid
}

// read returns nil if the file does not exist.
func (f file) read() ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func (f file) remove() error {
	if f.err != nil {
		return f.err
	}
	if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f file) hasContent(content []byte) bool {
	old, err := os.ReadFile(f.path)
	return f.err == nil && err == nil && bytes.Equal(old, content)
}

// write replaces the file by a rename, unless it has the content already.
func (f file) write(content []byte) error {
	if f.hasContent(content) {
		return nil
	}
	// The leading dot keeps TunnelOf from matching the file. With a constant name, crashes leave one
	// temporary file at most.
	fresh := file{filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".new"), f.mode, f.err}
	if err := fresh.remove(); err != nil {
		return err
	}
	if err := fresh.create(content); err != nil {
		return err
	}
	return os.Rename(fresh.path, f.path)
}

// create does not follow symbolic links.
func (f file) create(content []byte) error {
	opened, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	_, err = opened.Write(content)
	return errors.Join(err, opened.Close())
}
