package fsroot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

const nfsMagic = 0x6969

// BlockSize is what st_blocks counts, on every Linux.
const BlockSize = 512

// CheckNFS makes sure that dir is on an NFS mount. If the mount had failed, dir would be an
// empty directory of the container, and everything done there would be lost.
func CheckNFS(dir string) error {
	var stat syscall.Statfs_t
	err := IgnoringEINTR(func() error { return syscall.Statfs(dir, &stat) })
	if err != nil {
		return Refuse(operations.NotNFS, "inspecting %s: %v", dir, err).Because(err)
	}
	if int64(stat.Type) != nfsMagic { //nolint:unconvert,nolintlint // its width differs between architectures
		return Refuse(operations.NotNFS, "%s is not an NFS mount (its type is %#x, not %#x); nothing was touched", dir, stat.Type, nfsMagic)
	}
	return nil
}

// Renameat moves an entry from one open directory to another. Root.Rename would walk both paths
// again, through whatever lies there by then.
func Renameat(from *os.Root, oldName string, to *os.Root, newName string) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.Open(".")
	if err != nil {
		return err
	}
	defer target.Close()
	return IgnoringEINTR(func() error {
		return syscall.Renameat(int(source.Fd()), oldName, int(target.Fd()), newName)
	})
}

// TryLock takes the exclusive lock on f, unless another process has it.
func TryLock(f *os.File) (taken bool, err error) {
	err = IgnoringEINTR(func() error {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return true, nil
}

// touch sets the times of an open directory to now, by the clock of the server: it sends no time.
func touch(f *os.File) error {
	if err := setTimes(f, nil); err != nil {
		return fmt.Errorf("setting the times of %s: %w", f.Name(), err)
	}
	return nil
}

// lastChange asks the server itself when a file was changed last, and whether it was removed.
func lastChange(f *os.File) (at unix.StatxTimestamp, isRemoved bool, err error) {
	var is unix.Statx_t
	err = IgnoringEINTR(func() error {
		return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_CTIME|unix.STATX_NLINK, &is)
	})
	if errors.Is(err, syscall.ESTALE) {
		return at, true, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("inspecting %s: %w", f.Name(), err)
	}
	return is.Ctime, is.Nlink == 0, nil
}

// UserOf returns the user that a file belongs to.
func UserOf(info fs.FileInfo) int { return int(StatOf(info).Uid) }

// GroupOf returns the group that a file belongs to.
func GroupOf(info fs.FileInfo) int { return int(StatOf(info).Gid) }

// StatOf returns the attributes that package fs has no names for.
func StatOf(info fs.FileInfo) *syscall.Stat_t {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat
	}
	return &syscall.Stat_t{}
}

// IgnoringEINTR repeats a system call that a signal has interrupted.
func IgnoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// OpenAt opens an entry of a directory, never through a symbolic link.
func OpenAt(d *os.File, name string, flags int, mode uint32) (file *os.File, err error) {
	err = IgnoringEINTR(func() error {
		fd, err := unix.Openat(int(d.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if err == nil {
			file = os.NewFile(uintptr(fd), name)
		}
		return err
	})
	return file, err
}

// StatAt inspects an entry of a directory, and follows no link.
func StatAt(d *os.File, name string, into *unix.Stat_t) error {
	return IgnoringEINTR(func() error { return unix.Fstatat(int(d.Fd()), name, into, unix.AT_SYMLINK_NOFOLLOW) })
}

// Fstat inspects an open file.
func Fstat(file *os.File, into *unix.Stat_t) error {
	return IgnoringEINTR(func() error { return unix.Fstat(int(file.Fd()), into) })
}

// UnlinkAt removes an entry of a directory.
func UnlinkAt(d *os.File, name string, flags int) error {
	return IgnoringEINTR(func() error { return unix.Unlinkat(int(d.Fd()), name, flags) })
}

// LinkAt gives an entry of a directory another name.
func LinkAt(from *os.File, name string, to *os.File, newName string) error {
	return IgnoringEINTR(func() error { return unix.Linkat(int(from.Fd()), name, int(to.Fd()), newName, 0) })
}

// ReadNames reads the next names of a directory, as many as the kernel puts into a buffer of size bytes. After
// the last ones the error is io.EOF. Readdirnames would read 8 KiB at a time, and keep them until d is closed.
func ReadNames(d *os.File, size int) (names []string, err error) {
	buffer := make([]byte, size)
	var n int
	err = IgnoringEINTR(func() (err error) {
		n, err = unix.ReadDirent(int(d.Fd()), buffer)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	_, _, names = unix.ParseDirent(buffer[:n], -1, nil)
	return names, nil
}

// ReadlinkAt reads a link of any length that Linux has.
func ReadlinkAt(d *os.File, name string) (target string, err error) {
	into := make([]byte, unix.PathMax+1)
	err = IgnoringEINTR(func() error {
		n, err := unix.Readlinkat(int(d.Fd()), name, into)
		target = string(into[:max(n, 0)])
		return err
	})
	return target, err
}

// ChownAt gives a new entry, which is root's, to its owner.
func ChownAt(d *os.File, name string, is *unix.Stat_t) error {
	if is.Uid == 0 && is.Gid == 0 {
		return nil
	}
	return IgnoringEINTR(func() error {
		return unix.Fchownat(int(d.Fd()), name, int(is.Uid), int(is.Gid), unix.AT_SYMLINK_NOFOLLOW)
	})
}

// SetTimesAt sets the times of an entry, which may be a symbolic link.
func SetTimesAt(d *os.File, name string, is *unix.Stat_t) error {
	return IgnoringEINTR(func() error {
		return unix.UtimesNanoAt(int(d.Fd()), name, []unix.Timespec{is.Atim, is.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// SetTimes sets the times of an open file: by its name, the server would be asked for it once more.
func SetTimes(file *os.File, is *unix.Stat_t) error {
	return setTimes(file, &[2]unix.Timespec{is.Atim, is.Mtim})
}

// setTimes sends no times if they are nil.
func setTimes(file *os.File, times *[2]unix.Timespec) error {
	return IgnoringEINTR(func() error {
		_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, file.Fd(), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
