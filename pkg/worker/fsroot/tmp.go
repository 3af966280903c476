package fsroot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tmpName is the directory, in wellknown.StateDirectory, of what is not yet in its place. What is made
// side by side has more of them: the kernel lets only one process at a time into a directory that it
// changes, for a round trip to the server.
const tmpName = "tmp"

// TmpDirs are directories for what is not yet in its place; each has one user at a time. A batch makes its own,
// and removes those of others: so whatever a run that lost the lock wants to put into its place late, its
// directory is gone, and the server itself refuses that.
type TmpDirs struct {
	System *FileSystem
	Lock   *HeldLock // nil in tests

	mu    sync.Mutex
	names int    // how many this batch has made, or tried to; guarded by mu
	idle  []*Dir // guarded by mu
}

// Take gives a directory until it is put back. The lock is checked after a directory was made: whoever takes it from
// then on finds the directory.
func (t *TmpDirs) Take(ctx context.Context) (*Dir, error) {
	idle, name := t.next()
	if idle != nil {
		return idle, nil
	}
	d, err := t.System.State.Ensure(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := t.Lock.Check(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// next gives a directory that is idle, or the name of another one.
func (t *TmpDirs) next() (idle *Dir, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := len(t.idle) - 1; last >= 0 {
		idle, t.idle = t.idle[last], t.idle[:last]
		return idle, ""
	}
	if t.names++; t.names == 1 {
		return nil, tmpName
	}
	return nil, tmpName + "-" + strconv.Itoa(t.names)
}

// RemoveOthers removes the directories of earlier runs: this batch has the lock, so no other is at work there.
func (t *TmpDirs) RemoveOthers(ctx context.Context) error {
	names, err := t.System.State.Names(ctx)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name != tmpName && !strings.HasPrefix(name, tmpName+"-") })
	return InParallel(ctx, len(names), len(names), func(i int) error { return t.remove(ctx, names[i]) })
}

func (t *TmpDirs) remove(ctx context.Context, name string) error {
	err := t.System.State.RemoveEntry(ctx, name)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := t.System.State.Enter(ctx, name)
	if err != nil {
		return err
	}
	defer d.Close()
	leftovers, err := d.Names(ctx)
	for _, leftover := range leftovers {
		err = errors.Join(err, IgnoreMissing(d.Remove(leftover)))
	}
	if err != nil {
		return fmt.Errorf("emptying %s: %w", d.Path, err)
	}
	return t.System.State.RemoveEntry(ctx, name)
}

// Put gives a directory back.
func (t *TmpDirs) Put(d *Dir) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, d)
}

// Close closes the handles.
func (t *TmpDirs) Close() {
	for _, d := range t.idle {
		d.Close()
	}
}

// Write puts a file in its place by a rename, so that no reader ever finds half of it, and what was
// there stays until then.
func (t *TmpDirs) Write(ctx context.Context, to *Dir, name string, value any) error {
	data, err := Encode(value)
	if err == nil {
		err = t.System.BeforeGrowing(ctx, "write "+to.At(name))
	}
	if err == nil {
		err = t.place(ctx, to, name, data)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", to.At(name), err)
	}
	return nil
}

func (t *TmpDirs) place(ctx context.Context, to *Dir, name string, data []byte) error {
	tmp, err := t.Take(ctx)
	if err != nil {
		return err
	}
	defer t.Put(tmp)
	half := Unique("file")
	if err := tmp.CreateWhole(half, data); err != nil {
		return err
	}
	return tmp.MoveTo(ctx, "place "+to.At(name), half, to, name) // if this fails, another batch empties tmp
}

// Encode is the format of the files in wellknown.StateDirectory: JSON and a newline.
func Encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}
