package clone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// linked copies a regular file with several names. Its first copy has a name in the directory of links, too, by
// the number of the file, until the clone is published: so the other names find it, also in a later run.
func (c *copying) linked(ctx context.Context, d *folder, name string, is *unix.Stat_t) error {
	shard, err := c.links.shard(is.Ino)
	if err != nil {
		return err
	}
	lock := c.links.lock(is.Ino)
	lock.Lock()
	defer lock.Unlock()
	if err := c.lock.Check(); err != nil { // another name may have taken long
		return err
	}
	number := linkName(is.Ino)
	var first, own unix.Stat_t
	err = fsroot.StatAt(shard, number, &first)
	if errors.Is(err, fs.ErrNotExist) {
		return c.firstLink(ctx, d, name, is)
	}
	if err == nil && !c.isComplete(&first, is) {
		err = c.refill(ctx, d, name, is, shard)
	}
	if err != nil {
		return err
	}
	if fsroot.StatAt(d.to, name, &own) == nil && own.Ino == first.Ino {
		return nil
	}
	if err := c.System.BeforeGrowing(ctx, "link "+d.at(name)); err != nil {
		return err
	}
	if err := c.remove(ctx, d, name); err != nil {
		return err
	}
	err = fsroot.LinkAt(shard, number, d.to, name)
	if errors.Is(err, syscall.EMLINK) { // the last name that the server allows is that among the links
		return fsroot.IgnoringEINTR(func() error { return unix.Renameat(int(shard.Fd()), number, int(d.to.Fd()), name) })
	}
	return err
}

func (c *copying) firstLink(ctx context.Context, d *folder, name string, is *unix.Stat_t) error {
	if err := c.file(ctx, d, name, is, func() {}); err != nil {
		return err
	}
	err := c.System.BeforeGrowing(ctx, "note the links of "+d.at(name))
	if err == nil {
		err = c.links.add(d, name, is.Ino)
	}
	if errors.Is(err, syscall.EMLINK) { // an earlier run has copied all names that the server allows, see linked
		return nil
	}
	return err
}

// refill copies a file that has changed again, into the copy that may have several names already. If the file is gone
// before that is done, all of them have a part of it, so the run ends, and the next one finds another file there.
func (c *copying) refill(ctx context.Context, d *folder, name string, is *unix.Stat_t, shard *os.File) error {
	if err := c.System.BeforeGrowing(ctx, "copy "+d.at(name)); err != nil {
		return err
	}
	from, now, err := c.openRegular(ctx, d, name, is)
	if err != nil {
		return err
	}
	defer from.Close()
	c.Request(ctx, 1)
	to, err := fsroot.OpenAt(shard, linkName(is.Ino), unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = errors.Join(c.fill(ctx, d.at(name), from, to, now), to.Close())
	if errors.Is(err, errReplaced) {
		return fsroot.Replaced(d.at(name))
	}
	return err
}

// linkTable is the directory that has a name for each file with several, see copying.linked.
type linkTable struct {
	dir   *os.File
	locks [64]sync.Mutex // by the number of the file

	mu     sync.Mutex
	shards [16]*os.File // guarded by mu; nil until used
}

// shard is the directory that has the name of a file: several, so that they can be changed side by side.
func (t *linkTable) shard(inode uint64) (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := inode % uint64(len(t.shards))
	if t.shards[n] != nil {
		return t.shards[n], nil
	}
	name := linkName(n)
	err := fsroot.IgnoringEINTR(func() error { return unix.Mkdirat(int(t.dir.Fd()), name, fsroot.PrivateDirectory) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	t.shards[n], err = fsroot.OpenAt(t.dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return t.shards[n], err
}

// add gives a copy its name among the links, which a large one has since it was begun.
func (t *linkTable) add(d *folder, name string, inode uint64) error {
	shard, err := t.shard(inode)
	if err == nil {
		err = fsroot.LinkAt(d.to, name, shard, linkName(inode))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (t *linkTable) lock(inode uint64) *sync.Mutex { return &t.locks[inode%uint64(len(t.locks))] }

func (t *linkTable) close() {
	for _, shard := range t.shards {
		if shard != nil {
			_ = shard.Close()
		}
	}
	_ = t.dir.Close()
}

func linkName(inode uint64) string { return fmt.Sprintf("%x", inode) }

// A note, beside the links, says of which version of a file which copy is made. By it a later run goes on with a large
// file where an earlier one has stopped, and knows the complete copy of a file that has changed since the clone began,
// which may else be of the file as it was before, with the same size and time of change.

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

// isNoted reports whether a copy was made, in whole or in part, of a file as it is, by a note that can be read.
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

func (c *copying) completeOf(is *unix.Stat_t) func(copied *unix.Stat_t) bool {
	return func(copied *unix.Stat_t) bool { return c.isComplete(copied, is) }
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
	if isFolder(&copied) {
		return timeOf(copied.Ctim).Before(c.started), err
	}
	return !timeOf(copied.Mtim).Before(c.begun), err
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()) }
