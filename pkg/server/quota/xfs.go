package quota

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of linux/quota.h, linux/dqblk_xfs.h and linux/fs.h, which x/sys lacks.
const (
	projectQuota = 2
	setLimit     = (('X'<<8)+4)<<8 | projectQuota // Q_XSETQLIM
	getState     = (('X'<<8)+8)<<8 | projectQuota // Q_XGETQSTATV
	getNext      = (('X'<<8)+9)<<8 | projectQuota // Q_XGETNEXTQUOTA

	isEnforced = 1<<4 | 1<<5 // FS_QUOTA_PDQ_ACCT, FS_QUOTA_PDQ_ENFD

	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 1 << 9     // FS_XFLAG_PROJINHERIT

	blockSize = 512 // of limits
)

// projectLimit is struct fs_disk_quota.
type projectLimit struct {
	version   int8
	flags     int8
	fields    uint16
	id        uint32
	hardLimit uint64 // in blocks
	softLimit uint64
	_         [88]byte
}

// statistics is struct fs_quota_statv, as far as it is used.
type statistics struct {
	version int8
	_       uint8
	flags   uint16
	_       [252]byte
}

// attributes is struct fsxattr.
type attributes struct {
	flags   uint32
	_       [2]uint32
	project uint32
	_       [12]byte
}

// disk is a folder of an xfs. It is a handle of the file system, for which no device is needed.
type disk struct{ root *os.File }

func (d disk) call(command int, project uint32, argument unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, d.root.Fd(), uintptr(command), uintptr(project), uintptr(argument), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// check returns why the disk has no project quotas, or this process must not set them.
func (d disk) check() error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &s); err != nil {
		return fmt.Errorf("reading the type of the file system: %w", err)
	}
	if s.Type != unix.XFS_SUPER_MAGIC {
		return errors.New("the file system is not xfs")
	}
	now := statistics{version: 1}
	err := d.call(getState, 0, unsafe.Pointer(&now))
	if err != nil {
		return fmt.Errorf("reading whether quotas are enforced, which needs quotactl_fd of Linux 5.14 and quotas of xfs in the kernel: %w", err)
	}
	if now.flags&isEnforced != isEnforced {
		return errors.New("xfs is mounted without the option prjquota")
	}
	if _, err := d.limits(); err != nil {
		return fmt.Errorf("%w; it needs the capability SYS_ADMIN", err)
	}
	return nil
}

// limits returns the limits in bytes of all projects that have any files or a limit, 0 for none.
func (d disk) limits() (map[uint32]int64, error) {
	all := map[uint32]int64{}
	for next := uint32(1); next != 0; {
		var q projectLimit
		err := d.call(getNext, next, unsafe.Pointer(&q))
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("listing the limits of projects: %w", err)
		}
		all[q.id] = int64(q.hardLimit) * blockSize
		next = q.id + 1
	}
	return all, nil
}

// limit limits a project; 0 ends its limit.
func (d disk) limit(project uint32, size int64) error {
	q := projectLimit{version: 1, flags: 2, fields: 1<<2 | 1<<3, id: project, hardLimit: uint64(size) / blockSize}
	if err := d.call(setLimit, project, unsafe.Pointer(&q)); err != nil {
		return fmt.Errorf("limiting project %d: %w", project, err)
	}
	return nil
}

// wholeBlocks rounds a size up to one that can be a limit. More than the largest is no limit on any disk.
func wholeBlocks(size int64) int64 {
	const largest = 1 << 60
	return (min(size, largest) + blockSize - 1) / blockSize * blockSize
}

// project returns the project of a directory, to which what is made there belongs, or 0. It is not there if its path
// has links or leads to another file system.
func (d disk) project(path string) (project uint32, isThere bool, err error) {
	dir, err := d.open(path, unix.O_DIRECTORY)
	if isAbsent(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("opening directory %q: %w", path, err)
	}
	defer dir.Close()
	a, err := attributesOf(dir)
	if err != nil {
		return 0, false, fmt.Errorf("reading the project of directory %q: %w", path, err)
	}
	if a.flags&inherit == 0 {
		a.project = 0
	}
	return a.project, true, nil
}

// open opens what is below the folder, and what no client can put a link to.
func (d disk) open(path string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(int(d.root.Fd()), "."+path, &how)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) { // a rename meanwhile
			return nil, err
		}
	}
}

// isAbsent reports whether an error means that there is no such file, but at most one of another kind.
func isAbsent(err error) bool {
	absent := []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.ESTALE, unix.ENAMETOOLONG, unix.ENXIO}
	return slices.ContainsFunc(absent, func(errno error) bool { return errors.Is(err, errno) })
}

func attributesOf(file *os.File) (a attributes, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), getAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return a, errno
	}
	return a, nil
}

// setProject assigns a file or a directory to a project.
func setProject(file *os.File, project, flags uint32) error {
	a, err := attributesOf(file)
	if err != nil || a.project == project && a.flags&flags == flags {
		return err
	}
	a.project, a.flags = project, a.flags|flags
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), setAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return errno
	}
	return nil
}
