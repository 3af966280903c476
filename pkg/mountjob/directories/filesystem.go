package directories

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say which file system is expected, and what time it is here.
type Options struct {
	// FileSystemID is the file system that must be mounted.
	FileSystemID string
	// Aliases are ids whose marker is right too: the file system is a copy of theirs.
	Aliases []string
	// Now is time.Now when nil. It tells one life of a volume from the next, and decides nothing.
	Now func() time.Time
}

// FileSystem is an open file system that is known to be the right one. Batches and sweeps may
// run on it one after the other; other processes, on other nodes, may have it open as well.
type FileSystem struct {
	root  *os.Root // of the file system
	state *os.Root // wellknown.StateDirectory
	now   func() time.Time

	// step is called before every change and every look through a handle; an error stops there.
	// Tests use it to play crashes and intruders.
	step   func(name string) error // nil outside tests
	stepMu sync.Mutex              // held during step: tests need not mind that workers call it

	// space is called before every step that needs space on the server; its error stands for the
	// server's answer.
	space func(name string) error // nil outside tests

	// serverTime stands for the clock of the file server.
	serverTime func() time.Time // nil outside tests

	// lost is called after every rename between two directories that took place; an error stands
	// for an answer of the server that never came.
	lost func(name string) error // nil outside tests
}

// Open opens the file system mounted on dir and makes sure that it is the right one. A file
// system without a marker gets one; on one with another marker nothing is touched.
func Open(ctx context.Context, dir string, options Options) (*FileSystem, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the file system: %w", err)
	}
	return openRoot(ctx, root, options, nil)
}

func openRoot(ctx context.Context, root *os.Root, options Options, step func(string) error) (*FileSystem, error) {
	f := &FileSystem{root: root, now: options.Now, step: step}
	if f.now == nil {
		f.now = time.Now
	}
	if err := f.identify(ctx, options); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close lets go of the file system. Nothing is lost with it.
func (f *FileSystem) Close() {
	closeRoot(f.state)
	closeRoot(f.root)
}

// before is where a batch can stop: between two steps, never inside one.
func (f *FileSystem) before(ctx context.Context, step string) error {
	if ctx.Err() != nil {
		return &stopError{context.Cause(ctx)}
	}
	if f.step == nil {
		return nil
	}
	f.stepMu.Lock()
	defer f.stepMu.Unlock()
	if err := f.step(step); err != nil {
		return &stopError{err}
	}
	return nil
}

// beforeGrowing is before, for a step that needs space on the server.
func (f *FileSystem) beforeGrowing(ctx context.Context, step string) error {
	err := f.before(ctx, step)
	if err == nil && f.space != nil {
		err = f.space(step)
	}
	return err
}

// move is the step that renames something from one open directory to another.
func (f *FileSystem) move(ctx context.Context, step string, from *os.Root, oldName string, to *os.Root, newName string) error {
	if err := f.before(ctx, step); err != nil {
		return err
	}
	err := renameBetween(from, oldName, to, newName)
	if err == nil && f.lost != nil {
		err = f.lost(step)
	}
	return err
}

// stateFolder opens one of the directories in ours, and makes it at first use.
func (f *FileSystem) stateFolder(ctx context.Context, name string) (*os.Root, error) {
	where := child(wellknown.StateDirectory, name)
	folder, err := f.enter(ctx, f.state, name, where)
	if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	if err := f.beforeGrowing(ctx, "make "+where); err != nil {
		return nil, err
	}
	if err := f.state.Mkdir(name, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making %s: %w", where, err)
	}
	return f.enter(ctx, f.state, name, where)
}

// Modes of what is ours: who may read the ledger could learn other tenants' names.
const (
	privateDirectory = 0o700
	privateFile      = 0o600
)

// enter opens a directory of an open one, and makes sure that it is what lay there: not a
// link, and not something put in its place meanwhile. where is for messages.
func (f *FileSystem) enter(ctx context.Context, parent *os.Root, name, where string) (*os.Root, error) {
	seen, err := parent.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", where, err)
	}
	if err := wantDirectory(seen, where); err != nil {
		return nil, err
	}
	if err := f.before(ctx, "enter "+where); err != nil {
		return nil, err
	}
	folder, err := parent.OpenRoot(name)
	if err != nil {
		return nil, changed(where).because(err)
	}
	opened, err := folder.Lstat(".")
	if err == nil && os.SameFile(seen, opened) {
		return folder, nil
	}
	closeRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", where, err)
	}
	return nil, changed(where)
}

func wantDirectory(info fs.FileInfo, where string) error {
	switch {
	case info.IsDir():
		return nil
	case info.Mode().Type() == fs.ModeSymlink:
		return refuse(operations.SymlinkInPath, "%s is a symbolic link, and nothing is done behind one: put the directory itself there, or choose another path", quote(where))
	default:
		return refuse(operations.NotADirectory, "%s is not a directory: move it away, or choose another path", quote(where))
	}
}

func changed(where string) *failure {
	return refuse(operations.Changed, "somebody else put something in the place of %s at this moment; the next try looks again", quote(where))
}

// quote shows a path in a message, which must stay short.
func quote(where string) string {
	short := operations.Truncate(where, 256)
	if short != where {
		short += "…"
	}
	return fmt.Sprintf("%q", short)
}

// unique names something in /.efs-stunnel/tmp.
func unique(what string) string { return what + "-" + rand.Text() }

// closeRoot closes a handle that was only read through, or whose changes are done.
func closeRoot(folder *os.Root) {
	if folder != nil {
		_ = folder.Close()
	}
}
