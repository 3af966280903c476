// Package realtime lets the supervisor and its stunnels go on where a node's memory is full of data that
// only they can take out of it. There, the kernel makes a process that needs a page wait until others are
// free. One with realtime priority gets pages of a reserve instead, and one whose program is locked in
// memory need not wait for its own code.
package realtime

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// priority is the lowest that is realtime. What the process starts inherits it.
const priority = 1

// ErrNotRoot says that this process has no right to what Enter does.
var ErrNotRoot = errors.New("want to start as root with the capabilities SYS_NICE and IPC_LOCK, as in the component realtime")

// Enter gives this process realtime priority, and locks its program and another one with its libraries in
// memory for as long as it runs. It does what it can: an error names what it could not do.
func Enter(program string) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	files, err := filesOf(program)
	errs := []error{prioritize(), err}
	for _, file := range append(files, "/proc/self/exe") {
		errs = append(errs, lock(file))
	}
	return logging.Errors(errs...)
}

// Leave gives up root and every capability, for good. Whoever gets an error must end.
func Leave(uid, gid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("giving up root's groups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("becoming group %d: %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("becoming user %d: %w", uid, err)
	}
	// After a change of user, the kernel leaves this process's files in /proc to root.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the owner of /proc/self: %w", err)
	}
	return nil
}

// prioritize changes each thread; new ones inherit from the one that makes them.
func prioritize() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for changed := true; changed; {
		changed = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing threads: %w", err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return fmt.Errorf("the thread %q: %w", thread.Name(), err)
			}
			isNew, err := prioritizeThread(id)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("getting realtime priority: %w", err)
			}
			changed = changed || isNew
		}
	}
	return nil
}

func prioritizeThread(id int) (isNew bool, err error) {
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil || attr.Policy == unix.SCHED_RR {
		return false, err
	}
	return true, unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority}, 0)
}

// lock keeps a file in memory. All processes that run it have the same pages, those of other containers
// of the same image, too.
func lock(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	content, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %s: %w", path, err)
	}
	if err := unix.Mlock(content); err != nil {
		return fmt.Errorf("locking the %d bytes of %s in memory: %w", info.Size(), path, err)
	}
	return nil // it stays mapped
}

// filesOf returns a program, the loader that it names, and the libraries that this loads for it.
func filesOf(program string) ([]string, error) {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	loader, err := loaderOf(path)
	if err != nil || loader == "" {
		return []string{path}, err
	}
	files := []string{path, loader}
	text, err := exec.Command(loader, "--list", path).CombinedOutput() //nolint:noctx // it only reads files
	if err != nil {
		return files, fmt.Errorf("listing the libraries of %s: %w: %.300q", path, err, text)
	}
	for _, match := range library.FindAllSubmatch(text, -1) {
		files = append(files, string(match[1]))
	}
	return files, nil
}

// loaderOf returns "" for a static program.
func loaderOf(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the program %s: %w", path, err)
	}
	defer file.Close()
	section := file.Section(".interp")
	if section == nil {
		return "", nil
	}
	name, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("reading the loader of %s: %w", path, err)
	}
	return strings.TrimRight(string(name), "\x00"), nil
}

// library is a line of the loader's list, as ld.so(8) and ldd(1) have it.
var library = regexp.MustCompile(`(?m)=> (/\S+) \(0x[0-9a-f]+\)$`)
