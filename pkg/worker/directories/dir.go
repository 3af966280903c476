package directories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// dir is an open directory. Everything in it is reached by a single name through the handle, so
// nothing that is renamed or linked above it meanwhile leads an operation elsewhere.
type dir struct {
	*os.Root
	fs   *FileSystem
	path string // on the file system, for messages and steps
}

// Modes of the directories and files in wellknown.StateDirectory: whoever could read the ledger
// would learn the names of other tenants.
const (
	privateDirectory = 0o700
	privateFile      = 0o600
)

// maxFile bounds what is read of a file in wellknown.StateDirectory; each has some hundred bytes.
const maxFile = 64 << 10

// namesAtOnce is how many names of a directory are read before the context is checked again.
const namesAtOnce = 1024

// at is the path of an entry of d.
func (d *dir) at(name string) string { return path.Join(d.path, name) }

// close closes the handle of a directory that was only read, or whose changes are done.
func (d *dir) close() {
	if d != nil {
		_ = d.Root.Close()
	}
}

func (d *dir) stat(name string) (fs.FileInfo, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("inspecting %s: %w", d.at(name), err)
	}
	return info, nil
}

// enter opens a directory in d. It refuses a symbolic link, and a directory that was put in the
// place of the inspected one before it was opened.
func (d *dir) enter(ctx context.Context, name string) (*dir, error) {
	inspected, err := d.stat(name)
	if err != nil {
		return nil, err
	}
	if err := wantDirectory(inspected, d.at(name)); err != nil {
		return nil, err
	}
	if err := d.fs.before(ctx, "enter "+d.at(name)); err != nil {
		return nil, err
	}
	root, err := d.OpenRoot(name)
	if err != nil {
		return nil, replaced(d.at(name)).because(err)
	}
	sub := &dir{Root: root, fs: d.fs, path: d.at(name)}
	opened, err := sub.stat(".")
	if err == nil && os.SameFile(inspected, opened) {
		return sub, nil
	}
	sub.close()
	if err != nil {
		return nil, err
	}
	return nil, replaced(sub.path)
}

func wantDirectory(info fs.FileInfo, p string) error {
	switch {
	case info.IsDir():
		return nil
	case info.Mode().Type() == fs.ModeSymlink:
		return refuse(operations.SymlinkInPath, "%s is a symbolic link, and mountjob follows none: put the directory itself there, or choose another path", quote(p))
	default:
		return refuse(operations.NotADirectory, "%s is not a directory: move it away, or choose another path", quote(p))
	}
}

func replaced(p string) *refusal {
	return refuse(operations.Changed, "%s was replaced while this operation used it; the next try starts over", quote(p))
}

// ensure is enter for a private directory, which it makes if it is missing.
func (d *dir) ensure(ctx context.Context, name string) (*dir, error) {
	sub, err := d.enter(ctx, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	if err := d.mkdir(ctx, name); err != nil {
		return nil, err
	}
	return d.enter(ctx, name)
}

// mkdir makes a private directory, unless it exists.
func (d *dir) mkdir(ctx context.Context, name string) error {
	if err := d.fs.beforeGrowing(ctx, "make "+d.at(name)); err != nil {
		return err
	}
	if err := d.Mkdir(name, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", d.at(name), err)
	}
	return nil
}

// remove removes a file or an empty directory, unless it is gone.
func (d *dir) remove(ctx context.Context, name string) error {
	if err := d.fs.before(ctx, "remove "+d.at(name)); err != nil {
		return err
	}
	if err := ignoreMissing(d.Remove(name)); err != nil {
		return fmt.Errorf("removing %s: %w", d.at(name), err)
	}
	return nil
}

// move is the step that renames an entry of d to an entry of another directory.
func (d *dir) move(ctx context.Context, step, name string, to *dir, newName string) error {
	if err := d.fs.before(ctx, step); err != nil {
		return err
	}
	err := d.rename(name, to, newName)
	if err == nil {
		err = d.fs.hook(d.fs.lost, step)
	}
	return err
}

func (d *dir) rename(name string, to *dir, newName string) error {
	if err := renameat(d.Root, name, to.Root, newName); err != nil {
		return &os.LinkError{Op: "renameat", Old: d.at(name), New: to.at(newName), Err: err}
	}
	return nil
}

// names lists d by name only. ReadDir on a handle of an os.Root inspects each entry to know its type,
// one after the other, even where the kernel has given it: over NFS that is a round trip or more for
// each. So what an entry is must follow from its name, or from what is done with it.
func (d *dir) names(ctx context.Context) (all []string, err error) {
	err = d.eachName(ctx, func(some []string) error {
		all = append(all, some...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachName is names for a directory that may be large: use gets some names at a time.
func (d *dir) eachName(ctx context.Context, use func([]string) error) error {
	if err := d.fs.before(ctx, "list "+d.path); err != nil {
		return err
	}
	list, err := d.Open(".")
	if err != nil {
		return fmt.Errorf("listing %s: %w", d.path, err)
	}
	defer list.Close()
	for ctx.Err() == nil {
		some, err := list.Readdirnames(namesAtOnce)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", d.path, err)
		}
		if err := use(some); err != nil {
			return err
		}
	}
	return &stopError{context.Cause(ctx)}
}

func (d *dir) isEmpty() (bool, error) {
	list, err := d.Open(".")
	if err == nil {
		defer list.Close()
		_, err = list.Readdirnames(1)
	}
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, io.EOF):
		return true, nil
	}
	return false, fmt.Errorf("listing %s: %w", d.path, err)
}

// create makes a file that is on the server, whole, when create returns.
func (d *dir) create(name string, data []byte) error {
	file, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, d.Remove(name))
	}
	return nil
}

// read reads a small file, and when it was written by the clock of the server.
func (d *dir) read(name string) (data []byte, written time.Time, err error) {
	file, err := d.Open(name)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", d.at(name), err)
	}
	defer file.Close()
	data, err = io.ReadAll(io.LimitReader(file, maxFile))
	info, statErr := file.Stat()
	if err := errors.Join(err, statErr); err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", d.at(name), err)
	}
	return data, info.ModTime(), nil
}

// isGone says of an error of a list or a sweep, which take no lock, that something was removed since it was found.
// If another node has removed it, the handle is stale.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
