package fsroot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Dir is an open directory. Everything in it is reached by a single name through the handle, so
// nothing that is renamed or linked above it meanwhile leads an operation elsewhere.
type Dir struct {
	*os.Root
	System *FileSystem
	Path   string // on the file system, for messages and steps
}

// Modes of what is in wellknown.StateDirectory: the ledger has the names of other tenants.
const (
	PrivateDirectory = 0o700
	PrivateFile      = 0o600
)

// MaxFile bounds what is read of a file in wellknown.StateDirectory; each has some hundred bytes.
const MaxFile = 64 << 10

// namesAtOnce is how many names of a directory are read before the context is checked again.
const namesAtOnce = 1024

// At is the path of an entry of d.
func (d *Dir) At(name string) string { return path.Join(d.Path, name) }

// Close closes the handle of a directory that was only read, or whose changes are done.
func (d *Dir) Close() {
	if d != nil {
		_ = d.Root.Close()
	}
}

// Inspect returns what is under a name, and follows no link.
func (d *Dir) Inspect(name string) (fs.FileInfo, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", d.At(name), err)
	}
	return info, nil
}

// Enter opens a directory in d. It refuses a symbolic link, and what has replaced the directory that was inspected.
func (d *Dir) Enter(ctx context.Context, name string) (*Dir, error) {
	inspected, err := d.Inspect(name)
	if err != nil {
		return nil, err
	}
	if err := WantDirectory(inspected, d.At(name)); err != nil {
		return nil, err
	}
	if err := d.System.Before(ctx, "enter "+d.At(name)); err != nil {
		return nil, err
	}
	root, err := d.OpenRoot(name)
	if err != nil {
		return nil, Replaced(d.At(name)).Because(err)
	}
	sub := &Dir{Root: root, System: d.System, Path: d.At(name)}
	opened, err := sub.Inspect(".")
	if err == nil && os.SameFile(inspected, opened) {
		return sub, nil
	}
	sub.Close()
	if err != nil {
		return nil, err
	}
	return nil, Replaced(sub.Path)
}

// WantDirectory refuses a symbolic link, and what is no directory.
func WantDirectory(info fs.FileInfo, p string) error {
	switch {
	case info.IsDir():
		return nil
	case info.Mode().Type() == fs.ModeSymlink:
		return Refuse(operations.SymlinkInPath, "%s is a symbolic link, and mountjob follows none: put the directory itself there, or choose another path", Quote(p))
	default:
		return Refuse(operations.NotADirectory, "%s is not a directory: move it away, or choose another path", Quote(p))
	}
}

// Replaced refuses an operation because its path was replaced meanwhile.
func Replaced(p string) *Refusal {
	return Refuse(operations.Changed, "%s was replaced while this operation used it; the next try starts over", Quote(p))
}

// Ensure is enter for a private directory, which it makes if it is missing.
func (d *Dir) Ensure(ctx context.Context, name string) (*Dir, error) {
	sub, err := d.Enter(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	if err := d.MakePrivate(ctx, name); err != nil {
		return nil, err
	}
	return d.Enter(ctx, name)
}

// MakePrivate makes a private directory, unless it exists.
func (d *Dir) MakePrivate(ctx context.Context, name string) error {
	if err := d.System.BeforeGrowing(ctx, "make "+d.At(name)); err != nil {
		return err
	}
	if err := d.Mkdir(name, PrivateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", d.At(name), err)
	}
	return nil
}

// RemoveEntry removes a file or an empty directory, unless it is gone.
func (d *Dir) RemoveEntry(ctx context.Context, name string) error {
	if err := d.System.Before(ctx, "remove "+d.At(name)); err != nil {
		return err
	}
	if err := IgnoreMissing(d.Remove(name)); err != nil {
		return fmt.Errorf("removing %s: %w", d.At(name), err)
	}
	return nil
}

// MoveTo is the step that renames an entry of d to an entry of another directory.
func (d *Dir) MoveTo(ctx context.Context, step, name string, to *Dir, newName string) error {
	if err := d.System.Before(ctx, step); err != nil {
		return err
	}
	err := d.RenameTo(name, to, newName)
	if err == nil {
		err = d.System.Hook(d.System.Lost, step)
	}
	return err
}

// RenameTo renames an entry of d to an entry of another directory.
func (d *Dir) RenameTo(name string, to *Dir, newName string) error {
	if err := Renameat(d.Root, name, to.Root, newName); err != nil {
		return &os.LinkError{Op: "renameat", Old: d.At(name), New: to.At(newName), Err: err}
	}
	return nil
}

// Names lists d by name only. ReadDir on a handle of an os.Root inspects each entry to know its type, even where the
// kernel has given it: over NFS that is a round trip for each. So what an entry is must follow from its name or use.
func (d *Dir) Names(ctx context.Context) (all []string, err error) {
	err = d.EachName(ctx, func(some []string) error {
		all = append(all, some...)
		return nil
	})
	return all, err
}

// EachName is names for a directory that may be large: use gets some names at a time.
func (d *Dir) EachName(ctx context.Context, use func([]string) error) error {
	if err := d.System.Before(ctx, "list "+d.Path); err != nil {
		return err
	}
	list, err := d.Open(".")
	if err != nil {
		return fmt.Errorf("listing %s: %w", d.Path, err)
	}
	defer list.Close()
	for some, err := range Pieces(ctx, func() ([]string, error) { return list.Readdirnames(namesAtOnce) }) {
		if err != nil {
			return fmt.Errorf("listing %s: %w", d.Path, err)
		}
		if err := use(some); err != nil {
			return err
		}
	}
	return Stopped(ctx)
}

// Pieces gives names of a directory, some at a time, until io.EOF, another error, which it gives, or the end of ctx.
func Pieces(ctx context.Context, next func() ([]string, error)) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for ctx.Err() == nil {
			names, err := next()
			if errors.Is(err, io.EOF) || !yield(names, err) || err != nil {
				return
			}
		}
	}
}

// IsEmpty reports whether a directory has no entries.
func (d *Dir) IsEmpty() (bool, error) {
	list, err := d.Open(".")
	if err == nil {
		defer list.Close()
		_, err = list.Readdirnames(1)
	}
	if isEmpty := errors.Is(err, io.EOF); isEmpty || err == nil {
		return isEmpty, nil
	}
	return false, fmt.Errorf("listing %s: %w", d.Path, err)
}

// CreateWhole makes a file that is on the server, whole, when create returns.
func (d *Dir) CreateWhole(name string, data []byte) error {
	file, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, PrivateFile)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, d.Remove(name))
	}
	return nil
}

// ReadSmall reads a small file, and when it was written by the clock of the server.
func (d *Dir) ReadSmall(name string) (data []byte, written time.Time, err error) {
	file, err := d.Open(name)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", d.At(name), err)
	}
	defer file.Close()
	data, err = io.ReadAll(io.LimitReader(file, MaxFile))
	info, statErr := file.Stat()
	if err := errors.Join(err, statErr); err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", d.At(name), err)
	}
	return data, info.ModTime(), nil
}

// IsGone reports whether something was removed since it was found: by another node, if its handle is stale.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
}

// IgnoreMissing drops the error of what is not there.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
