package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// Needs are the resources of the machine that a lab needs.
type Needs struct {
	MemoryMiB int
	DiskGiB   int
	DiskPaths []string // existing folders whose file systems need DiskGiB free
}

// Preflight checks the machine before anything is made. Each error says what to do.
func Preflight(needs Needs) error {
	checks := []func() error{
		checkArchitecture,
		CheckRoot,
		checkTun,
		func() error { return checkMemory(needs.MemoryMiB) },
	}
	for _, path := range needs.DiskPaths {
		checks = append(checks, func() error { return checkDisk(path, needs.DiskGiB) })
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func checkArchitecture() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the lab's nodes are amd64 machines and this one is %s: run it on an amd64 machine", runtime.GOARCH)
	}
	return nil
}

// CheckRoot returns an error for a user other than root.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the lab makes network namespaces and interfaces: run it as root, for example with sudo")
	}
	return nil
}

const tunDevice = "/dev/net/tun"

func checkTun() error {
	f, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the nodes' network needs %s (%w): run `modprobe tun`, and in a container pass the device with --device %s",
			tunDevice, err, tunDevice)
	}
	return f.Close()
}

func checkMemory(wantMiB int) error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return fmt.Errorf("reading free memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return fmt.Errorf("reading free memory: %w", err)
	}
	return enoughMemory(*info.MemAvailableBytes/mebibyte, wantMiB)
}

func enoughMemory(haveMiB uint64, wantMiB int) error {
	if haveMiB < uint64(max(wantMiB, 0)) {
		return fmt.Errorf("the lab needs %d MiB of free memory and this machine has %d: stop other programs, or use less with --nodes and --node-memory", wantMiB, haveMiB)
	}
	return nil
}

func checkDisk(path string, wantGiB int) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("reading free disk space of %s: %w", path, err)
	}
	return enoughDisk(path, st.Bavail*uint64(st.Bsize), wantGiB)
}

func enoughDisk(path string, haveBytes uint64, wantGiB int) error {
	if haveBytes < uint64(max(wantGiB, 0))*gibibyte {
		return fmt.Errorf("the lab needs %d GiB of free disk at %s and there are %.1f: free some space, or set XDG_CACHE_HOME to a folder on a larger disk",
			wantGiB, path, float64(haveBytes)/gibibyte)
	}
	return nil
}
