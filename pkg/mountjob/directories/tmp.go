package directories

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// tmpName is the directory, in wellknown.StateDirectory, of what is not yet in its place. What is made
// side by side has more of them: the kernel lets only one process at a time into a directory that it
// changes, for a round trip to the server.
const tmpName = "tmp"

// tmpDirs are directories for what is not yet in its place; each has one user at a time.
type tmpDirs struct {
	fs *FileSystem

	mu    sync.Mutex
	names int      // how many there are, open or not; guarded by mu
	shut  []string // the names of those that could not be opened; guarded by mu
	idle  []*dir   // guarded by mu
}

// take gives a directory until it is put back.
func (t *tmpDirs) take(ctx context.Context) (*dir, error) {
	d, name := t.next()
	if d != nil {
		return d, nil
	}
	d, err := t.open(ctx, name)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.shut = append(t.shut, name)
	}
	return d, err
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

// open opens a directory, and removes what runs left that died: this batch has the lock, so no other
// is at work there.
func (t *tmpDirs) open(ctx context.Context, name string) (*dir, error) {
	d, err := t.fs.state.ensure(ctx, name)
	if err != nil {
		return nil, err
	}
	leftovers, err := d.names(ctx)
	for _, leftover := range leftovers {
		err = errors.Join(err, d.Remove(leftover))
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("emptying %s: %w", d.path, err)
	}
	return d, nil
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
