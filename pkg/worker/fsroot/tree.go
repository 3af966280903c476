package fsroot

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// Tree opens directories by their path below a base, and keeps the handles: the operations of a
// batch mostly share their parents. It may be used by several workers.
type Tree struct {
	Base *Dir
	// make makes a directory, unless another worker has made it.
	make func(ctx context.Context, parent *Dir, name string) error

	mu   sync.Mutex
	open map[string]*Dir // by path; never the base; guarded by mu
}

// NewTree returns the tree below a base.
func NewTree(base *Dir, makeMissing func(ctx context.Context, parent *Dir, name string) error) *Tree {
	return &Tree{Base: base, make: makeMissing, open: map[string]*Dir{}}
}

// MakePrivate makes directories of trees in wellknown.StateDirectory.
func MakePrivate(ctx context.Context, parent *Dir, name string) error {
	return parent.MakePrivate(ctx, name)
}

// maxOpen bounds the handles that a tree keeps between two operations.
const maxOpen = 256

// Dir opens the directory at a path; "/" is the base.
func (t *Tree) Dir(ctx context.Context, p string) (*Dir, error) {
	if p == "/" {
		return t.Base, nil
	}
	if d := t.keep(p, nil); d != nil {
		return d, nil
	}
	parent, err := t.Dir(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	d, err := parent.Enter(ctx, path.Base(p))
	if err != nil {
		return nil, err
	}
	return t.keep(p, d), nil
}

// keep gives the one handle of a path: that which is kept, or else d.
func (t *Tree) keep(p string, d *Dir) *Dir {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.open[p]; kept != nil {
		d.Close()
		return kept
	}
	if d != nil {
		t.open[p] = d
	}
	return d
}

// Ensure is dir, and makes what is missing.
func (t *Tree) Ensure(ctx context.Context, p string) (*Dir, error) {
	d, err := t.Dir(ctx, p)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	return t.Add(ctx, p)
}

// Add is ensure for a directory that is most likely missing: it is not looked for first.
func (t *Tree) Add(ctx context.Context, p string) (*Dir, error) {
	parent, err := t.Ensure(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	if err := t.make(ctx, parent, path.Base(p)); err != nil {
		return nil, err
	}
	return t.Dir(ctx, p)
}

// Inspect inspects what is at a path, which must be a directory; nil is nothing.
func (t *Tree) Inspect(ctx context.Context, p string) (info fs.FileInfo, err error) {
	parent, err := t.Dir(ctx, path.Dir(p))
	if err == nil {
		info, err = parent.Inspect(path.Base(p))
	}
	if err != nil {
		return nil, IgnoreMissing(err)
	}
	return info, WantDirectory(info, parent.At(path.Base(p)))
}

// Exists reports whether anything is at a path. What a link or a file hides counts as there.
func (t *Tree) Exists(ctx context.Context, p string) (bool, error) {
	info, err := t.Inspect(ctx, p)
	if _, ok := AsRefusal(err); ok {
		return true, nil
	}
	return info != nil, err
}

// Forget closes the handles of a path and of all below it.
func (t *Tree) Forget(p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, d := range t.open {
		if IsAtOrBelow(at, p) {
			d.Close()
			delete(t.open, at)
		}
	}
}

// Close closes all handles, and the base.
func (t *Tree) Close() {
	if t != nil {
		t.Forget("/")
		t.Base.Close()
	}
}

// IsLarge reports whether many handles are open.
func (t *Tree) IsLarge() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) > maxOpen
}

// IsAtOrBelow reports whether a path is another one, or below it.
func IsAtOrBelow(p, top string) bool {
	return p == top || strings.HasPrefix(p, strings.TrimSuffix(top, "/")+"/")
}
