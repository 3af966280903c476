package fsroot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
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

// ListDirectories gives the directories that were asked for. It follows no link, changes nothing, and takes
// no lock. A directory that can be no volume is given with the reason.
func (f *FileSystem) ListDirectories(ctx context.Context, wanted requests.Directories, emit func(requests.Directory) error) error {
	l := &directoryList{emit: emit}
	for _, p := range wanted.Paths {
		info, err := f.inspectPath(ctx, p)
		if _, refused := AsRefusal(err); err != nil && !refused {
			return err
		}
		if err := l.give(directoryAt(p, info, err)); err != nil {
			return err
		}
	}
	for _, pattern := range wanted.Patterns {
		if err := l.expand(ctx, f.Root, strings.Split(pattern[1:], "/")); err != nil {
			return err
		}
	}
	return nil
}

func (f *FileSystem) inspectPath(ctx context.Context, p string) (fs.FileInfo, error) {
	if err := operations.CheckPath(p); err != nil {
		return nil, Refuse(operations.BadPath, "%v", err)
	}
	tree := NewTree(f.Root, nil)
	defer tree.Forget("/")
	info, err := tree.Inspect(ctx, p)
	if IsGone(err) || err == nil && info == nil {
		return nil, Refuse(operations.NotFound, "there is no such directory")
	}
	return info, err
}

type directoryList struct {
	emit  func(requests.Directory) error
	count int
}

func (l *directoryList) give(d requests.Directory) error {
	if l.count++; l.count > requests.MaxDirectories {
		return fmt.Errorf("there are more than %d such directories: choose fewer at once, with a narrower pattern", requests.MaxDirectories)
	}
	return l.emit(d)
}

// directoryAt describes what is at a path. Whoever is root on the file system can give it any name.
func directoryAt(p string, info fs.FileInfo, problem error) requests.Directory {
	if problem == nil {
		problem = operations.CheckPath(p)
	}
	d := requests.Directory{Path: operations.Truncate(strings.ToValidUTF8(p, "\uFFFD"), wellknown.MaxPathBytes)}
	if problem != nil {
		d.Problem = operations.Truncate(problem.Error(), MaxProblemBytes)
		return d
	}
	d.UID, d.GID, d.Setgid = UserOf(info), GroupOf(info), info.Mode()&fs.ModeSetgid != 0
	return d
}

// expand gives what matches the components below a directory.
func (l *directoryList) expand(ctx context.Context, at *Dir, components []string) error {
	name := components[0]
	if at.At(name) == wellknown.StateDirectory {
		return nil
	}
	if !strings.ContainsAny(name, `*?[\`) {
		info, err := at.Inspect(name)
		return l.visit(ctx, match{at, name, info, err, true}, components[1:])
	}
	return at.EachName(ctx, func(names []string) error {
		var matches []match
		for _, n := range names {
			if ok, _ := path.Match(name, n); ok && at.At(n) != wellknown.StateDirectory {
				matches = append(matches, match{at: at, name: n})
			}
		}
		err := InParallel(ctx, DefaultSweepWorkers, len(matches), func(i int) error {
			matches[i].info, matches[i].err = at.Inspect(matches[i].name)
			return nil
		})
		for i := 0; i < len(matches) && err == nil; i++ {
			err = l.visit(ctx, matches[i], components[1:])
		}
		return err
	})
}

type match struct {
	at    *Dir
	name  string
	info  fs.FileInfo
	err   error // of the inspection
	named bool  // by its whole name
}

func (m match) path() string { return m.at.At(m.name) }

// visit goes on with a match. Files that match a pattern by chance are left out.
func (l *directoryList) visit(ctx context.Context, m match, below []string) error {
	err := m.err
	if err == nil {
		err = WantDirectory(m.info, m.path())
	}
	r, refused := AsRefusal(err)
	switch isMissing := IsGone(err); {
	case isMissing, refused && !m.named && r.Reason == operations.NotADirectory:
		return nil
	case refused:
		return l.give(directoryAt(m.path(), nil, err))
	case err != nil:
		return err
	case len(below) == 0:
		return l.give(directoryAt(m.path(), m.info, nil))
	}
	d, err := m.at.Enter(ctx, m.name)
	if _, refused := AsRefusal(err); refused || IsGone(err) {
		return l.give(directoryAt(m.path(), nil, err))
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return l.expand(ctx, d, below)
}

// MaxProblemBytes limits each message in an answer.
const MaxProblemBytes = 1024
