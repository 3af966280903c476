package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// readMemory asks the kernel for the memory of each running process, of each at most once in a
// StatusInterval.
func (s *supervisor) readMemory(now time.Time) {
	for _, t := range s.tunnels {
		if t.state() != StateRunning || now.Before(t.memoryAt) {
			continue // before it runs, the process may still be the launcher
		}
		t.memoryAt = now.Add(StatusInterval)
		memory, err := s.memoryOf(t.proc.PID())
		if err != nil {
			s.logOf(t).Debug("memory of stunnel cannot be read", "err", err)
			continue
		}
		t.memory = memory
	}
}

// dataOf is the size of what RLIMIT_DATA bounds, in bytes: VmData of proc_pid_status(5).
func dataOf(pid int) (uint64, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parseData(text)
}

var errNoData = errors.New("the process has no VmData, as it has ended")

func parseData(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		value, found := bytes.CutPrefix(line, []byte("VmData:"))
		if !found {
			continue
		}
		kib, err := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading VmData: %w", err)
		}
		return kib << 10, nil
	}
	return 0, errNoData
}
