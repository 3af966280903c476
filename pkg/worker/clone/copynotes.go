package clone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// A note, beside the links, says of which version of a file a copy is made, and which one. By it a later run goes
// on with a large file where an earlier one has stopped, and knows the complete copy of a file that has changed
// since the clone began: without a note, such a copy may be of the file as it was before, with the same size and
// time of change.

// notedBytes is from which size on a file has a note: a Job may end while it is copied.
const notedBytes = 4 * flushedBytes

func noteOf(is, copied *unix.Stat_t) string {
	return fmt.Sprintf("%d bytes, written at %d.%09d, changed at %d.%09d, copied to %d\n",
		is.Size, is.Mtim.Sec, is.Mtim.Nsec, is.Ctim.Sec, is.Ctim.Nsec, copied.Ino)
}

func noteName(inode uint64) string { return linkName(inode) + "-note" }

// note writes a note before the first byte is copied, if the file needs one.
func (c *copying) note(ctx context.Context, is, copied *unix.Stat_t) error {
	if is.Size < notedBytes && !c.isYoung(is) {
		return nil
	}
	shard, err := c.links.shard(is.Ino)
	if err != nil {
		return err
	}
	c.Request(ctx, 3)
	file, err := fsroot.OpenAt(shard, noteName(is.Ino), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, fsroot.PrivateFile)
	if err != nil {
		return err
	}
	_, err = file.WriteString(noteOf(is, copied))
	return errors.Join(err, file.Close())
}

// isNoted reports whether a copy was made, in whole or in part, of a file as it is. Without a note that can be
// read, it was not.
func (c *copying) isNoted(is, copied *unix.Stat_t) bool {
	shard, err := c.links.shard(is.Ino)
	if err != nil {
		return false
	}
	file, err := fsroot.OpenAt(shard, noteName(is.Ino), unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, fsroot.MaxFile))
	return err == nil && string(text) == noteOf(is, copied)
}

// isYoung reports whether an entry has changed since the first run of the clone began.
func (c *copying) isYoung(is *unix.Stat_t) bool { return !timeOf(is.Ctim).Before(c.begun) }

// isComplete reports whether a copy is complete, and of the entry as it is.
func (c *copying) isComplete(copied, is *unix.Stat_t) bool {
	return isCopyOf(copied, is) && (!c.isYoung(is) || c.isNoted(is, copied))
}

// openPart opens the copy of a large file that an earlier run has begun; nil if there is none.
func (c *copying) openPart(d *folder, name string, is *unix.Stat_t) (*os.File, error) {
	var copied unix.Stat_t
	if is.Size < notedBytes || fsroot.StatAt(d.to, name, &copied) != nil || copied.Mode&unix.S_IFMT != unix.S_IFREG ||
		isCopyOf(&copied, is) || !c.isNoted(is, &copied) {
		return nil, nil //nolint:nilerr,nilnil // what cannot be inspected is no part, either
	}
	return fsroot.OpenAt(d.to, name, unix.O_WRONLY, 0)
}

// isLeft reports whether an entry of an old copy, which the source no longer has, is of an earlier run and may be
// cut: a file whose own time was not set, or a directory that this run has not been in.
func (c *copying) isLeft(d *folder, name string) (bool, error) {
	var copied unix.Stat_t
	err := fsroot.StatAt(d.to, name, &copied)
	if copied.Mode&unix.S_IFMT == unix.S_IFDIR {
		return timeOf(copied.Ctim).Before(c.started), err
	}
	return !timeOf(copied.Mtim).Before(c.begun), err
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()) }
