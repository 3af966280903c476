package supervise

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultMemoryLimit bounds the data of one stunnel process, in bytes. It lives in 3 MiB, and takes
// some 100 KiB more for each connection.
const DefaultMemoryLimit = 256 << 20

// Launch becomes a stunnel process that has been given a socket as descriptor 3
// (sd_listen_fds(3)): only the process
// itself can know the id that the protocol of socket activation asks for. No memory that it asks
// for can be more than the limit, so that one which leaks ends alone. It returns only if it
// could not.
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
