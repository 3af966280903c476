package clone

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// What a clone does with one entry of a directory. Names are single components, used through the handles of
// the directories that they are in, and no call follows a symbolic link.

// changeTries is how often a file is copied that changes meanwhile. After that, its copy is what was read last.
const changeTries = 3

// create makes a copy with build, unless one of an earlier run mayStay. Any other thing of the name is removed.
func (c *copying) create(ctx context.Context, d *folder, name string, mayStay func(copied *unix.Stat_t) bool, build func() error) (made bool, err error) {
	err = fsroot.IgnoringEINTR(build)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	var copied unix.Stat_t
	if err := fsroot.StatAt(d.to, name, &copied); err != nil {
		return false, err
	}
	if mayStay(&copied) {
		return false, nil
	}
	if err := c.remove(ctx, d, name); err != nil {
		return false, err
	}
	err = fsroot.IgnoringEINTR(build)
	return err == nil, err
}

// isCopyOf reports whether a copy is complete: its time of change is set last, after all else is on the server.
func isCopyOf(copied, is *unix.Stat_t) bool {
	return copied.Mode == is.Mode && copied.Uid == is.Uid && copied.Gid == is.Gid && isSameVersion(copied, is)
}

// isSameVersion reports whether a file was most likely not written between two looks at it.
func isSameVersion(a, b *unix.Stat_t) bool { return a.Size == b.Size && a.Mtim == b.Mtim }

// file copies a regular file that has one name. It calls placed when the copy is created, and still empty.
func (c *copying) file(ctx context.Context, d *folder, name string, is *unix.Stat_t, placed func()) error {
	if err := c.System.BeforeGrowing(ctx, "copy "+d.at(name)); err != nil {
		return err
	}
	c.Request(ctx, 1)
	to, err := c.openPart(d, name, is)
	made := to != nil
	if err == nil && !made {
		made, err = c.create(ctx, d, name, c.completeOf(is), func() (err error) {
			to, err = fsroot.OpenAt(d.to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, is.Mode&0o777)
			if err == nil && is.Nlink > 1 && is.Size >= notedBytes { // the next run may come to another name first
				err = c.links.add(d, name, is.Ino)
			}
			return err
		})
	}
	placed()
	if err != nil && to != nil {
		return errors.Join(err, to.Close())
	}
	if err != nil || !made {
		return err
	}
	from, now, err := c.openRegular(ctx, d, name, is)
	if err == nil {
		err = errors.Join(c.fill(ctx, d.at(name), from, to, now), from.Close())
	}
	err = errors.Join(err, to.Close()) // over NFS, closing may be what reports that writing failed
	if !errors.Is(err, errReplaced) {
		return err
	}
	// Not before it is closed: over NFS, an open file is not removed, but renamed.
	return cmp.Or(c.remove(ctx, d, name), errReplaced)
}

// openRegular opens a file of the source, if it is still the one that was found.
func (c *copying) openRegular(ctx context.Context, d *folder, name string, found *unix.Stat_t) (*os.File, unix.Stat_t, error) {
	var is unix.Stat_t
	c.Request(ctx, 2)                          // it is opened and closed
	from, err := d.open(name, unix.O_NONBLOCK) // a pipe in its place must not block
	if err != nil {
		return nil, is, err
	}
	err = ofSource(fsroot.Fstat(from, &is))
	if err == nil && (is.Mode&unix.S_IFMT != unix.S_IFREG || !isSameFile(&is, found)) {
		err = errReplaced
	}
	if err != nil {
		return nil, is, errors.Join(err, from.Close())
	}
	return from, is, nil
}

// fill copies content and attributes of a file that is as just found, on from what an earlier run has of that version.
func (c *copying) fill(ctx context.Context, at string, from, to *os.File, is unix.Stat_t) error {
	c.Request(ctx, 6) // one is read and inspected, the other written, given its owner and its times, and closed
	var made, after unix.Stat_t
	if err := fsroot.Fstat(to, &made); err != nil { // now, while the client has the attributes from creating it
		return err
	}
	start := int64(0)
	if made.Size > 0 && c.isNoted(&is, &made) {
		start = max(0, made.Size-flushedBytes)
	}
	for try := 1; ; try++ {
		if start == 0 {
			if err := c.begin(ctx, to, &is, &made, try); err != nil {
				return err
			}
		}
		// An NFS client sends new attributes also when it could not send the data before them, so without the
		// flush at its end another run would take the file for complete.
		if err := c.content(ctx, at, from, to, &is, start); err != nil {
			return err
		}
		if err := ofSource(fsroot.Fstat(from, &after)); err != nil {
			return err
		}
		if isSameVersion(&is, &after) && is.Ctim == after.Ctim { // also if its time of change was set back
			break
		}
		if try == changeTries { // with the time from before, so that another run finds it incomplete
			c.changed.Add(1)
			break
		}
		is, start = after, 0
	}
	return c.setAttributes(from, to, made, &is)
}

// begin empties a copy, and then notes what goes into it.
func (c *copying) begin(ctx context.Context, to *os.File, is, made *unix.Stat_t, try int) error {
	if try > 1 || made.Size > 0 {
		if err := to.Truncate(0); err != nil {
			return err
		}
	}
	return c.note(ctx, is, made)
}

func (c *copying) symlink(ctx context.Context, d *folder, name string, is *unix.Stat_t) error {
	if err := c.System.BeforeGrowing(ctx, "copy "+d.at(name)); err != nil {
		return err
	}
	target, err := fsroot.ReadlinkAt(d.from, name)
	if errors.Is(err, syscall.EINVAL) {
		return errReplaced // by no link
	}
	if err != nil {
		return ofSource(err)
	}
	made, err := c.create(ctx, d, name, c.completeOf(is), func() error { return unix.Symlinkat(target, int(d.to.Fd()), name) })
	if err != nil || !made {
		return err
	}
	if err := fsroot.ChownAt(d.to, name, is); err != nil {
		return err
	}
	err = fsroot.SetTimesAt(d.to, name, is)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) { // not every server has times of links
		return nil
	}
	return err
}

// node copies a named pipe or a socket. Devices need a right that no Job has; EFS has none.
func (c *copying) node(ctx context.Context, d *folder, name string, is *unix.Stat_t) error {
	if err := c.System.BeforeGrowing(ctx, "copy "+d.at(name)); err != nil {
		return err
	}
	made, err := c.create(ctx, d, name, c.completeOf(is), func() error {
		return unix.Mknodat(int(d.to.Fd()), name, is.Mode&unix.S_IFMT|is.Mode&0o777, 0)
	})
	if err != nil || !made {
		return err
	}
	if err := fsroot.ChownAt(d.to, name, is); err != nil {
		return err
	}
	if err := fsroot.IgnoringEINTR(func() error { return unix.Fchmodat(int(d.to.Fd()), name, is.Mode&0o7777, 0) }); err != nil {
		return err
	}
	return fsroot.SetTimesAt(d.to, name, is)
}

// setAttributes gives an open copy the attributes of its source; the times come last, see isCopyOf.
func (c *copying) setAttributes(from, to *os.File, now unix.Stat_t, is *unix.Stat_t) error {
	if now.Uid != is.Uid || now.Gid != is.Gid {
		if err := fsroot.IgnoringEINTR(func() error { return unix.Fchown(int(to.Fd()), int(is.Uid), int(is.Gid)) }); err != nil {
			return err
		}
	}
	if mode := is.Mode & 0o7777; mode != now.Mode&0o7777 || mode > 0o777 { // chown and writing drop setuid and setgid
		if err := fsroot.IgnoringEINTR(func() error { return unix.Fchmod(int(to.Fd()), mode) }); err != nil {
			return err
		}
	}
	if err := c.copyXattrs(from, to); err != nil {
		return err
	}
	return fsroot.SetTimes(to, is)
}

// userXattrs are the extended attributes that are the users' own. Others mean something to one server only.
const userXattrs = "user."

// copyXattrs does nothing on servers without extended attributes, such as those before NFSv4.2.
func (c *copying) copyXattrs(from, to *os.File) error {
	if c.noXattrs.Load() {
		return nil
	}
	names, err := xattrText(func(into []byte) (int, error) { return unix.Flistxattr(int(from.Fd()), into) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		c.noXattrs.Store(true)
		return nil
	}
	err = ofSource(err)
	for name := range strings.SplitSeq(string(names), "\x00") {
		if !strings.HasPrefix(name, userXattrs) || err != nil {
			continue
		}
		var value []byte
		value, err = xattrText(func(into []byte) (int, error) { return unix.Fgetxattr(int(from.Fd()), name, into) })
		if errors.Is(err, syscall.ENODATA) { // it was removed meanwhile
			err = nil
			continue
		}
		if err = ofSource(err); err == nil {
			err = fsroot.IgnoringEINTR(func() error { return unix.Fsetxattr(int(to.Fd()), name, value, 0) })
		}
	}
	return err
}

// xattrText calls read with a buffer that is large enough.
func xattrText(read func(into []byte) (int, error)) ([]byte, error) {
	for size := 1024; ; size *= 2 {
		into := make([]byte, size)
		n, err := read(into)
		if errors.Is(err, syscall.ERANGE) && size < 1<<20 {
			continue
		}
		return into[:max(n, 0)], err
	}
}
