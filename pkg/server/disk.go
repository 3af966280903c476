package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is the mounted disk.
type disk struct {
	export   string // the folder that clients see
	recovery string // what Ganesha recalls of its clients' locks when it starts again
	id       string // of this server; it stays with the disk
}

// errShared describes why a folder may not be exported.
var errShared = errors.New("want a folder that is the root of a mounted file system: NFS-Ganesha opens files by handles, " +
	"and a client that makes up handles reads and writes every file of the file system, those outside of the export, too. " +
	"Mount a disk of its own there, or give --shared-file-system if clients may reach all of that file system")

// openDisk checks the folder of a disk, and makes what it lacks there.
func openDisk(o Options) (disk, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return disk{}, fmt.Errorf("listing mounts: %w", err)
	}
	err = checkMount(string(text), o.Data)
	if err != nil && !o.SharedFileSystem {
		return disk{}, fmt.Errorf("folder %s: %w", o.Data, err)
	}
	if err != nil {
		o.Log.Warn("clients can reach files outside of the export, because the folder is not the root of a file system of its own", "path", o.Data)
	}
	d := disk{export: filepath.Join(o.Data, "export"), recovery: filepath.Join(o.Data, "recovery")}
	err = errors.Join(makeFolder(d.export, 0o755), makeFolder(d.recovery, 0o700))
	if err == nil {
		err = checkHandles(d.export)
	}
	if err == nil {
		d.id, err = readID(filepath.Join(o.Data, "server-id"))
	}
	return d, err
}

// checkMount returns an error if a folder is not the root of a mounted file system. The text has the form
// of proc_pid_mountinfo(5): the fourth field is the folder of the file system that is mounted, the fifth
// is where. Of several mounts in one place, the last one counts.
func checkMount(mountinfo, folder string) error {
	err := errShared
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || unescape(fields[4]) != folder {
			continue
		}
		err = nil
		if fields[3] != "/" {
			err = fmt.Errorf("it is the folder %s of its file system: %w", unescape(fields[3]), errShared)
		}
	}
	return err
}

// unescape replaces what the kernel writes for white space and backslashes.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// makeFolder makes a folder unless it exists. What is there may be of a client, so links are not followed.
func makeFolder(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a folder: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("making a folder: %s exists and is none", path)
	}
	return nil
}

var errServed = errors.New("another server still serves the disk; waiting until it has ended")

// lockFolder locks a folder until all copies of the file are closed. It returns errServed while another process has it.
func lockFolder(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("locking the disk: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errServed
	}
	return nil, errors.Join(fmt.Errorf("locking the disk: %w", err), file.Close())
}

// checkSpace returns an error if less than a hundredth of the disk is free: readers and deletions go on, and writers fail.
func checkSpace(data string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(data, &s); err != nil {
		return fmt.Errorf("reading the size of the disk: %w", err)
	}
	switch size := s.Blocks * uint64(s.Bsize); {
	case s.Bavail*100 < s.Blocks:
		return fmt.Errorf("it is full: %d of %d MiB are free; delete files or volumes, or expand the disk's claim", s.Bavail*uint64(s.Bsize)>>20, size>>20)
	case s.Ffree*100 < s.Files:
		return fmt.Errorf("it is full: %d of %d inodes are free; delete files or volumes", s.Ffree, s.Files)
	}
	return nil
}

// checkHandles returns an error if Ganesha could not open the folder by its handle.
func checkHandles(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("opening the export: %w", err)
	}
	defer dir.Close()
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, folder, 0)
	if err != nil {
		return fmt.Errorf("getting the handle of %s (name_to_handle_at), which file systems as ext4 and xfs have: %w", folder, err)
	}
	fd, err := unix.OpenByHandleAt(int(dir.Fd()), handle, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening %s by its handle (open_by_handle_at), which needs the capability DAC_READ_SEARCH: %w", folder, err)
	}
	return unix.Close(fd)
}

var idRule = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// readID returns the id in a file, which it makes. A client may have changed it: an id of another form, or
// what is no file, is replaced.
func readID(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		text := make([]byte, 27)
		n, _ := unix.Read(fd, text) // an error is an id that has no form
		_ = unix.Close(fd)
		if id := string(text[:max(n, 0)]); idRule.MatchString(id) {
			return id, nil
		}
	}
	id := rand.Text()
	if err := errors.Join(os.RemoveAll(path), writeFile(path, id, 0)); err != nil {
		return "", fmt.Errorf("writing the id of the server: %w", err)
	}
	return id, nil
}

// writeFile replaces a file, which only its owner reads.
func writeFile(path, text string, owner int) error {
	fresh := path + ".new"
	err := os.Remove(fresh)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if owner != 0 {
		err = errors.Join(err, file.Chown(owner, owner))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
