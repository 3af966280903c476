package fsroot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Waits between two tries to take the lock. The kernel could wait for it, but not until a
// deadline.
const (
	firstLockWait = 5 * time.Millisecond
	lastLockWait  = 500 * time.Millisecond
)

// ErrLockLost is the cause of a refusal after which this process cannot know what others have done.
var ErrLockLost = errors.New("the lock was lost")

// HeldLock is a lock that this process has. The server gives the locks of a node that is cut off for longer
// than its lease to others. Whoever takes a lock changes the times of its file, so the node finds out when it
// is back.
type HeldLock struct {
	*os.File
	taken unix.StatxTimestamp // when the file was changed last, as this process has taken the lock
	lost  atomic.Bool
}

// Take waits for the lock on the file.
func (l *HeldLock) Take(ctx context.Context) error {
	err := waitForLock(ctx, l.File)
	if err == nil {
		err = touch(l.File)
	}
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

// Lock waits until this process alone, of all nodes and clusters, may change ledger and
// directories. The caller closes the file to release the lock.
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

func waitForLock(ctx context.Context, file *os.File) error {
	for wait := firstLockWait; ; wait = min(2*wait, lastLockWait) {
		taken, err := TryLock(file)
		if err != nil || taken {
			return err
		}
		select {
		case <-ctx.Done():
			return Refuse(operations.Locked, "another Job has held %s until this one's time was over; the next Job tries again", wellknown.LockFile).Because(context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
