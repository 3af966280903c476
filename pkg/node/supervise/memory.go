package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// DefaultMemoryLimit bounds the data segment of one stunnel process, in bytes. stunnel 5.68 begins with 10
// MiB, of which it uses 3, and 5.74 with 27 MiB; each connection adds some 200 KiB.
const DefaultMemoryLimit = 256 << 20

// checkMemory limits the memory of each stunnel that has begun to run, so that a leak of one does not
// take the memory of the others, and reads it at most once in a tunnelspec.StatusInterval.
func (s *supervisor) checkMemory(now time.Time) {
	for _, t := range s.tunnels {
		if t.state() != tunnelspec.StateRunning || now.Before(t.memoryAt) {
			continue // a starting process may still be the launcher, a Go program that needs more
		}
		if t.memoryAt.IsZero() {
			err := s.limitMemory(t.proc.Pid, s.options.MemoryLimit)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				s.logFor(t).Warn("limiting the memory of stunnel failed", "err", err)
			}
		}
		t.memoryAt = now.Add(tunnelspec.StatusInterval)
		memory, err := s.memoryOf(t.proc.Pid)
		if err != nil {
			s.logFor(t).Debug("reading the memory of stunnel failed", "err", err)
			continue
		}
		t.memory = memory
	}
}

func limitDataSize(pid int, bytes uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}

// dataSize returns the size of the data segment in bytes, which RLIMIT_DATA bounds: VmData of
// proc_pid_status(5).
func dataSize(pid int) (uint64, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parseDataSize(string(text))
}

func parseDataSize(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "VmData: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no VmData, because the process has exited")
}
