package directories

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// nfsMagic is the type that statfs gives for an NFS mount.
const nfsMagic = 0x6969

// CheckNFS makes sure that dir is on an NFS mount. If the mount had failed, dir would be an
// empty directory of the container, and everything done there would be lost.
func CheckNFS(dir string) error {
	var stat syscall.Statfs_t
	err := ignoringEINTR(func() error { return syscall.Statfs(dir, &stat) })
	if err != nil {
		return refuse(operations.NotNFS, "inspecting %s: %v", dir, err).because(err)
	}
	if int64(stat.Type) != nfsMagic { //nolint:unconvert,nolintlint // its width differs between architectures
		return refuse(operations.NotNFS, "%s is not an NFS mount (its type is %#x, not %#x); nothing was touched", dir, stat.Type, nfsMagic)
	}
	return nil
}

// renameat moves an entry from one open directory to another. Root.Rename would walk both paths
// again, through whatever lies there by then.
func renameat(from *os.Root, oldName string, to *os.Root, newName string) error {
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
	return ignoringEINTR(func() error {
		return syscall.Renameat(int(source.Fd()), oldName, int(target.Fd()), newName)
	})
}

// tryLock takes the exclusive lock on f, unless another process has it.
func tryLock(f *os.File) (taken bool, err error) {
	err = ignoringEINTR(func() error {
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
	err := ignoringEINTR(func() error {
		_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, f.Fd(), 0, 0, 0, 0, 0)
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

func userOf(info fs.FileInfo) int  { return int(statOf(info).Uid) }
func groupOf(info fs.FileInfo) int { return int(statOf(info).Gid) }

func statOf(info fs.FileInfo) *syscall.Stat_t {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat
	}
	return &syscall.Stat_t{}
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
