package directories

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// tree opens directories by their path below a base, and keeps the handles: the operations of a
// batch mostly share their parents. It may be used by several workers.
type tree struct {
	base *dir
	// make makes a directory, unless another worker has made it.
	make func(ctx context.Context, parent *dir, name string) error

	mu   sync.Mutex
	open map[string]*dir // by path; never the base; guarded by mu
}

func newTree(base *dir, makeMissing func(ctx context.Context, parent *dir, name string) error) *tree {
	return &tree{base: base, make: makeMissing, open: map[string]*dir{}}
}

// makePrivate makes directories of trees in wellknown.StateDirectory.
func makePrivate(ctx context.Context, parent *dir, name string) error { return parent.mkdir(ctx, name) }

// maxOpen bounds the handles that a tree keeps between two operations.
const maxOpen = 256

// dir opens the directory at a path; "/" is the base.
func (t *tree) dir(ctx context.Context, p string) (*dir, error) {
	if p == "/" {
		return t.base, nil
	}
	if d := t.keep(p, nil); d != nil {
		return d, nil
	}
	parent, err := t.dir(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	d, err := parent.enter(ctx, path.Base(p))
	if err != nil {
		return nil, err
	}
	return t.keep(p, d), nil
}

// keep gives the one handle of a path: that which is kept, or else d.
func (t *tree) keep(p string, d *dir) *dir {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.open[p]; kept != nil {
		d.close()
		return kept
	}
	if d != nil {
		t.open[p] = d
	}
	return d
}

// ensure is dir, and makes what is missing.
func (t *tree) ensure(ctx context.Context, p string) (*dir, error) {
	d, err := t.dir(ctx, p)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	return t.add(ctx, p)
}

// add is ensure for a directory that is most likely missing: it is not looked for first.
func (t *tree) add(ctx context.Context, p string) (*dir, error) {
	parent, err := t.ensure(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	if err := t.make(ctx, parent, path.Base(p)); err != nil {
		return nil, err
	}
	return t.dir(ctx, p)
}

// stat inspects what is at a path, which must be a directory; nil is nothing.
func (t *tree) stat(ctx context.Context, p string) (info fs.FileInfo, err error) {
	parent, err := t.dir(ctx, path.Dir(p))
	if err == nil {
		info, err = parent.stat(path.Base(p))
	}
	if err != nil {
		return nil, ignoreMissing(err)
	}
	return info, wantDirectory(info, parent.at(path.Base(p)))
}

// exists reports whether anything is at a path. What a link or a file hides counts as there.
func (t *tree) exists(ctx context.Context, p string) (bool, error) {
	info, err := t.stat(ctx, p)
	if _, ok := asRefusal(err); ok {
		return true, nil
	}
	return info != nil, err
}

// forget closes the handles of a path and of all below it.
func (t *tree) forget(p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, d := range t.open {
		if isAtOrBelow(at, p) {
			d.close()
			delete(t.open, at)
		}
	}
}

// close closes all handles, and the base.
func (t *tree) close() {
	if t != nil {
		t.forget("/")
		t.base.close()
	}
}

// isLarge reports whether many handles are open.
func (t *tree) isLarge() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) > maxOpen
}

// trim closes handles if they are many. None may be in use.
func (t *tree) trim() {
	if t.isLarge() {
		t.forget("/")
	}
}

func isAtOrBelow(p, top string) bool {
	return p == top || strings.HasPrefix(p, strings.TrimSuffix(top, "/")+"/")
}
