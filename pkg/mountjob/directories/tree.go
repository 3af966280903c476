package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// tree walks the directories below an open one, and keeps those open that it went through: the
// operations of a batch mostly share their parents.
type tree struct {
	fs    *FileSystem
	base  *os.Root
	where string // of base, for messages
	make  func(ctx context.Context, parent *os.Root, name, where string) error
	open  map[string]*os.Root // by path; never the base
}

// maxOpen bounds the handles that a tree keeps between two operations.
const maxOpen = 256

// folder opens the directory at a path; "/" is the base.
func (t *tree) folder(ctx context.Context, p string) (*os.Root, error) {
	if p == "/" {
		return t.base, nil
	}
	if folder, ok := t.open[p]; ok {
		return folder, nil
	}
	parent, err := t.folder(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	return t.enter(ctx, parent, p)
}

// ensure is folder, and makes what is missing.
func (t *tree) ensure(ctx context.Context, p string) (*os.Root, error) {
	folder, err := t.folder(ctx, p)
	if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	parent, err := t.ensure(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	if _, err := parent.Lstat(path.Base(p)); errors.Is(err, fs.ErrNotExist) {
		if err := t.make(ctx, parent, path.Base(p), t.at(p)); err != nil {
			return nil, err
		}
	}
	return t.enter(ctx, parent, p)
}

func (t *tree) enter(ctx context.Context, parent *os.Root, p string) (*os.Root, error) {
	folder, err := t.fs.enter(ctx, parent, path.Base(p), t.at(p))
	if err != nil {
		return nil, err
	}
	t.open[p] = folder
	return folder, nil
}

// look says what is at a path, which must be a directory; nil is nothing.
func (t *tree) look(ctx context.Context, p string) (fs.FileInfo, error) {
	parent, err := t.folder(ctx, path.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := parent.Lstat(path.Base(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", t.at(p), err)
	}
	return info, wantDirectory(info, t.at(p))
}

// forget closes what is open at a path and below, because it is no longer there.
func (t *tree) forget(p string) {
	for at, folder := range t.open {
		if at == p || strings.HasPrefix(at, strings.TrimSuffix(p, "/")+"/") {
			closeRoot(folder)
			delete(t.open, at)
		}
	}
}

// trim is for between two operations, when no handle is in use.
func (t *tree) trim() {
	if len(t.open) > maxOpen {
		t.forget("/")
	}
}

func (t *tree) at(p string) string { return child(t.where, p) }

// child is the path of name in the directory at p.
func child(p, name string) string { return path.Join(p, name) }
