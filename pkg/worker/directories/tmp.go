package directories

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

// tmpDirs are directories for what is not yet in its place; each has one user at a time. A batch makes its own,
// and removes those of others: so whatever a run that lost the lock wants to put into its place late, its
// directory is gone, and the server itself refuses that.
type tmpDirs struct {
	fs   *FileSystem
	lock *heldLock // nil in tests

	mu    sync.Mutex
	names int      // how many this batch has, open or not; guarded by mu
	shut  []string // the names of those that could not be opened; guarded by mu
	idle  []*dir   // guarded by mu
}

// take gives a directory until it is put back.
func (t *tmpDirs) take(ctx context.Context) (*dir, error) {
	d, name := t.next()
	if d != nil {
		return d, nil
	}
	d, err := t.make(ctx, name)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.shut = append(t.shut, name)
	}
	return d, err
}

// make makes a directory. The lock is checked after that: whoever takes it from now on finds the directory.
func (t *tmpDirs) make(ctx context.Context, name string) (*dir, error) {
	d, err := t.fs.state.ensure(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := t.lock.check(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// next gives a directory that is idle, or the name of another one.
func (t *tmpDirs) next() (idle *dir, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := len(t.idle) - 1; last >= 0 {
		idle, t.idle = t.idle[last], t.idle[:last]
		return idle, ""
	}
	if last := len(t.shut) - 1; last >= 0 {
		name, t.shut = t.shut[last], t.shut[:last]
		return nil, name
	}
	t.names++
	if t.names == 1 {
		return nil, tmpName
	}
	return nil, tmpName + "-" + strconv.Itoa(t.names)
}

// removeOthers removes the directories of earlier runs: this batch has the lock, so no other is at work there.
func (t *tmpDirs) removeOthers(ctx context.Context) error {
	names, err := t.fs.state.names(ctx)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name != tmpName && !strings.HasPrefix(name, tmpName+"-") })
	return inParallel(ctx, len(names), len(names), func(i int) error { return t.remove(ctx, names[i]) })
}

func (t *tmpDirs) remove(ctx context.Context, name string) error {
	err := t.fs.state.remove(ctx, name)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := t.fs.state.enter(ctx, name)
	if err != nil {
		return err
	}
	defer d.close()
	leftovers, err := d.names(ctx)
	for _, leftover := range leftovers {
		err = errors.Join(err, ignoreMissing(d.Remove(leftover)))
	}
	if err != nil {
		return fmt.Errorf("emptying %s: %w", d.path, err)
	}
	return t.fs.state.remove(ctx, name)
}

func (t *tmpDirs) put(d *dir) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, d)
}

func (t *tmpDirs) close() {
	for _, d := range t.idle {
		d.close()
	}
}

// write puts a file in its place by a rename, so that no reader ever finds half of it, and what was
// there stays until then.
func (t *tmpDirs) write(ctx context.Context, to *dir, name string, value any) error {
	data, err := encode(value)
	if err == nil {
		err = t.fs.beforeGrowing(ctx, "write "+to.at(name))
	}
	if err == nil {
		err = t.place(ctx, to, name, data)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", to.at(name), err)
	}
	return nil
}

func (t *tmpDirs) place(ctx context.Context, to *dir, name string, data []byte) error {
	tmp, err := t.take(ctx)
	if err != nil {
		return err
	}
	defer t.put(tmp)
	half := unique("file")
	if err := tmp.create(half, data); err != nil {
		return err
	}
	return tmp.move(ctx, "place "+to.at(name), half, to, name) // if this fails, another batch empties tmp
}

// encode is the format of the files in wellknown.StateDirectory: JSON and a newline.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}
