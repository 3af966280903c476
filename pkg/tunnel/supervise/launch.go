package supervise

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultMemoryLimit bounds the data segment of one stunnel process, in bytes. stunnel needs 3 MiB,
// and some 100 KiB for each connection.
const DefaultMemoryLimit = 256 << 20

// Launch replaces this process by stunnel, which takes descriptor 3 as its listening socket
// (sd_listen_fds(3)). The protocol demands the process id of stunnel in LISTEN_PID, which only the
// process itself has before the exec. The memory limit keeps a leak of one stunnel from the others.
// Launch returns only on error.
func Launch(program, file string, memoryLimit uint64) error {
	limit := unix.Rlimit{Cur: memoryLimit, Max: memoryLimit}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return fmt.Errorf("limiting the memory of stunnel: %w", err)
	}
	env := append(os.Environ(), "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	if err := syscall.Exec(program, []string{program, file}, env); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	return nil
}
