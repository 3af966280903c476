package directories

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// nfsMagic is what statfs says of an NFS mount.
const nfsMagic = 0x6969

// CheckNFS makes sure that dir is on an NFS mount. If the mount had failed, dir would be an
// empty directory of the container, and everything done there would be lost.
func CheckNFS(dir string) error {
	var stat syscall.Statfs_t
	err := ignoringEINTR(func() error { return syscall.Statfs(dir, &stat) })
	if err != nil {
		return refuse(operations.NotNFS, "looking at %s: %v", dir, err).because(err)
	}
	if int64(stat.Type) != nfsMagic { //nolint:unconvert,nolintlint // its width differs between architectures
		return refuse(operations.NotNFS, "%s is not an NFS mount (its type is %#x, not %#x); nothing was touched", dir, stat.Type, nfsMagic)
	}
	return nil
}

// renameBetween moves an entry from one open directory to another. Root.Rename would walk both
// paths again, through whatever lies there by then.
func renameBetween(from *os.Root, oldName string, to *os.Root, newName string) error {
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
	err = withDescriptor(source, func(sourceFD int) error {
		return withDescriptor(target, func(targetFD int) error {
			return syscall.Renameat(sourceFD, oldName, targetFD, newName)
		})
	})
	if err != nil {
		return &os.LinkError{Op: "renameat", Old: child(from.Name(), oldName), New: child(to.Name(), newName), Err: err}
	}
	return nil
}

// tryLock takes the exclusive lock on f, or says that another one has it.
func tryLock(f *os.File) (taken bool, err error) {
	err = withDescriptor(f, func(fd int) error {
		return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return true, nil
}

// touch sets the times of an open directory to now, by the clock of who keeps it: no time is given.
func touch(f *os.File) error {
	err := withDescriptor(f, func(fd int) error {
		_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("setting the times of %s: %w", f.Name(), err)
	}
	return nil
}

// groupOf is the gid of what was looked at.
func groupOf(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(stat.Gid)
}

func userOf(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(stat.Uid)
}

func withDescriptor(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) {
		result = ignoringEINTR(func() error { return do(int(fd)) })
	}); err != nil {
		return err
	}
	return result
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
