package fsroot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// Waits between two tries to take the lock: the kernel would wait without a deadline.
const (
	firstLockWait = 5 * time.Millisecond
	lastLockWait  = 500 * time.Millisecond
)

// ErrLockLost is the cause of a refusal after which this process cannot know what others have done.
var ErrLockLost = errors.New("the lock was lost")

// HeldLock is held by this process. The server gives the locks of a node that is cut off for longer than its lease to
// others. Whoever takes a lock changes the times of its file, so the node finds out when it is back.
type HeldLock struct {
	*os.File
	taken unix.StatxTimestamp // when the file was changed last, as this process has taken the lock
	lost  atomic.Bool
}

// Take waits for the lock on the file.
func (l *HeldLock) Take(ctx context.Context) error {
	for wait := firstLockWait; ; wait = min(2*wait, lastLockWait) {
		if taken, err := TryLock(l.File); err != nil {
			return err
		} else if taken {
			break
		}
		if !loop.Pause(ctx, wait) {
			return Refuse(operations.Locked, "another Job has held %s until this one's time was over; the next Job tries again", wellknown.LockFile).Because(context.Cause(ctx))
		}
	}
	err := touch(l.File)
	if err == nil {
		l.taken, _, err = lastChange(l.File)
	}
	return err
}

// Check refuses to go on without the lock. It comes before a step that would harm what another process has done
// since. Only a step that was sent already, and that the server carries out late, is not kept from that.
func (l *HeldLock) Check() error {
	if l == nil { // a test has no lock
		return nil
	}
	now, isRemoved, err := lastChange(l.File)
	if err != nil {
		return err
	}
	if isRemoved || now != l.taken {
		l.lost.Store(true)
	}
	return l.WasLost()
}

// WasLost is check without asking the server.
func (l *HeldLock) WasLost() error {
	if l == nil || !l.lost.Load() {
		return nil
	}
	return Refuse(operations.Locked, "this Job was cut off from the file system, and another one has the lock since; the next try starts over").Because(ErrLockLost)
}

// Lock waits until only this process, of all nodes and clusters, may change anything, until it closes the file.
func (f *FileSystem) Lock(ctx context.Context) (*HeldLock, error) {
	file, err := f.State.OpenFile(path.Base(wellknown.LockFile), os.O_RDWR|os.O_CREATE, PrivateFile)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", wellknown.LockFile, err)
	}
	lock := &HeldLock{File: file}
	if err := lock.Take(ctx); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return lock, nil
}

// tmpName is the directory, in wellknown.StateDirectory, of what is not yet in its place. What is made side by side has
// more: the kernel lets only one process at a time into a directory that it changes, for a round trip to the server.
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

// Write puts a file in its place by a rename: no reader finds half of it, and what was there stays until then.
func (t *TmpDirs) Write(ctx context.Context, to *Dir, name string, value any) error {
	data, err := operations.MarshalLine(value)
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
