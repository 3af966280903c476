package directories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Waits between two tries to take the lock. The kernel could wait for it, but not until a
// deadline.
const (
	firstLockWait = 5 * time.Millisecond
	lastLockWait  = 500 * time.Millisecond
)

// lock waits until this process alone, of all nodes and clusters, may change ledger and
// directories. The caller closes the file to release the lock.
func (f *FileSystem) lock(ctx context.Context) (*os.File, error) {
	file, err := f.state.OpenFile(path.Base(wellknown.LockFile), os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", wellknown.LockFile, err)
	}
	if err := waitForLock(ctx, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func waitForLock(ctx context.Context, file *os.File) error {
	for wait := firstLockWait; ; wait = min(2*wait, lastLockWait) {
		taken, err := tryLock(file)
		if err != nil || taken {
			return err
		}
		select {
		case <-ctx.Done():
			return refuse(operations.Locked, "another Job has held %s until this one's time was over; the next Job tries again", wellknown.LockFile).because(context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
