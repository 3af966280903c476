package nfsops

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ProcessorTime returns the seconds that the processors of this node have worked since it was started.
func ProcessorTime() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the time of processors: %w", err)
	}
	c := stat.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ, nil
}

// RequestsOf returns the number of requests of the NFS mount at a path since it was mounted.
func RequestsOf(path string) (uint64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	mounts, err := self.MountStats()
	if err != nil {
		return 0, fmt.Errorf("reading the statistics of mounts: %w", err)
	}
	return requestsAt(mounts, path)
}

func requestsAt(mounts []*procfs.Mount, path string) (sum uint64, err error) {
	for _, mount := range mounts {
		stats, ok := mount.Stats.(*procfs.MountStatsNFS)
		if mount.Mount != path || !ok {
			continue
		}
		for _, operation := range stats.Operations {
			sum += operation.Requests
		}
		return sum, nil
	}
	return 0, fmt.Errorf("no NFS is mounted at %s", path)
}

// ServerOf returns the address of the server of the file system at a path in the kernel's list of NFS volumes, as
// /proc/net/nfsfs/volumes has it. Mounts of one server by two addresses have the same, and one connection, if the
// kernel recognizes the server.
func ServerOf(volumes io.Reader, path string) (string, error) {
	var status unix.Stat_t
	if err := unix.Stat(path, &status); err != nil {
		return "", fmt.Errorf("reading the device of %s: %w", path, err)
	}
	return serverOf(volumes, fmt.Sprintf("%d:%d", unix.Major(status.Dev), unix.Minor(status.Dev)))
}

func serverOf(volumes io.Reader, device string) (string, error) {
	lines := bufio.NewScanner(volumes)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // NV SERVER PORT DEV FSID FSC
		if len(fields) > 3 && fields[3] == device {
			return fields[1] + " " + fields[2], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("reading the list of NFS volumes: %w", err)
	}
	return "", fmt.Errorf("no NFS volume has the device %s", device)
}
